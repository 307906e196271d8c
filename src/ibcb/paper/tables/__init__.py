"""The paper's tables: settings as data, a runner that never computes a cell twice, and the page beside the paper's."""

from ibcb.paper.tables.page import write_page
from ibcb.paper.tables.runner import TABLES, Cell, Outcome, PaperSetting, cells, reproduce

__all__ = ["TABLES", "Cell", "Outcome", "PaperSetting", "cells", "reproduce", "write_page"]

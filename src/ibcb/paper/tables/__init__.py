"""The paper's tables: settings as data, a runner that never computes a cell twice, and the page beside the paper's."""

from ibcb.paper.tables.page import write_page
from ibcb.paper.tables.runner import Outcome, reproduce
from ibcb.paper.tables.settings import TABLES, Cell, Setting, cells

__all__ = ["TABLES", "Cell", "Outcome", "Setting", "cells", "reproduce", "write_page"]

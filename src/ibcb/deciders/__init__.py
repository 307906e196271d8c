"""Kinds of deciders."""

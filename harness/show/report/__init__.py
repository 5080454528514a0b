"""Rows and published numbers -> tables, verdicts and figures. Everything here only reads rows."""

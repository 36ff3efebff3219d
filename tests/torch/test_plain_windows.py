"""Modules without wrapper: windows, data, weights and gradients of every kind, over both reducers."""

import rows

test_row = rows.tests(__file__, "plain_rows")

"""Same mathematics: the same bytes with gradgate and by hand."""

import rows

test_row = rows.tests(__file__, "parity_rows")

"""Pipeline schedules, optimizers in the backward, averagers and process groups in Python: told, counted, and left as they are."""

import rows

test_row = rows.tests(__file__, "recognised_rows")

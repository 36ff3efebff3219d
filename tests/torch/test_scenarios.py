"""What happens in and around micro-steps of real loops: failures, other tools, other orders. State is restored and counts are right."""

import rows

test_row = rows.tests(__file__, "failing_rows", "tools_rows", "evaluation_rows", "several_rows", "loop_rows", "wrong_rows", "option_rows")

"""Training scripts that nobody edits: `gradgate run [--audit|--enforce] -- torchrun … train.py`.

    command ──exec──► the script's own command, with inject/ on PYTHONPATH
                      sitecustomize ── torch is imported ──► install()
                      the first optimizer step ──► found, attach(accumulate="observe") ──► implicit micro-steps ──► report at exit

`command` runs in the user's shell and becomes the command; all else runs inside the script's processes, and must not change what they
do: whatever goes wrong there is told, and the script is left alone.
"""

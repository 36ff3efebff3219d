# What a program's --help prints, as the body of a manual page: synopsis, description, an item for each option. -v name=PROGRAM;
# -v command=PATH: of a command of it, as a part of its page. Any awk.

# Of roff: a backslash and a hyphen as such, no line that begins a request.
function escaped(text, out, i, c) {
  out = ""
  for (i = 1; i <= length(text); i++) {
    c = substr(text, i, 1)
    out = out (c == "\\" ? "\\e" : c == "-" ? "\\-" : c)
  }
  return out ~ /^[.']/ ? "\\&" out : out
}

function joined(former, line) {
  sub(/^ +/, "", line)
  return former == "" || former ~ /\n$/ ? former line : former " " line
}

# What has been gathered is written.
function flush() {
  if (term != "") {
    # A command's --help is the same for all, and so are the lists of commands: each has a part of its own.
    if (!(command != "" && term ~ /--help/) && heading != "Subcommands:") printf ".TP\n.B %s\n%s\n", escaped(term), escaped(text)
  } else if (text != "") {
    if (heading == "Exit codes:") print ".SH NOTES"
    else print ".PP"
    heading = ""
    print escaped(text)
  }
  term = text = ""
}

/^Usage: / {
  usage = substr($0, 8)
  sub(/\n.PP\n$/, "", text)
  if (command != "") {
    printf ".SS %s %s\n.B %s\n.PP\n%s\n", name, command, escaped(usage), escaped(text)
  } else {
    printf ".SH SYNOPSIS\n.B %s\n.SH DESCRIPTION\n%s\n", escaped(usage), escaped(text)
  }
  text = ""
  next
}
usage == "" && $0 == "" { text = text (text == "" ? "" : "\n.PP\n"); next }
usage == "" { text = joined(text, $0); next }
/^[A-Z][A-Za-z ]*:$/ {
  flush()
  heading = $0
  if (command == "" && heading ~ /^(Options|Flags):$/) print ".SH OPTIONS"
  if (command == "" && heading == "Exit codes:") print ".SH EXIT STATUS"
  next
}
/^  [^ ]/ {
  flush()
  term = substr($0, 3)
  if (match(term, /   */)) {
    text = substr(term, RSTART + RLENGTH)
    term = substr(term, 1, RSTART - 1)
  }
  sub(/,--/, ", --", term)
  if (text == "(default: empty)") text = ""
  next
}
/^   / { text = joined(text, $0); next }
$0 == "" { flush(); next }
command != "" && index($0, name " --help lists") == 1 { next }
{ text = joined(text, $0) }
END { flush() }

"""The library: what each name is, how many operands it takes, what it means, and an example.

`resolve` looks names up here, lowering calls by what it finds, `spec/library.md` is printed from it
(`python -m llc.frontend.library`) and a test runs every example. A name that a program binds itself
hides the library's.

Three kinds of entry:
- `Primitive`: applied in place (`ir.primitives`); as a value it is a function that applies it.
- `Defined`: defined under its own name in `stdlib/<file>`, in the language itself, because it calls
  functions or asks the world. Two forms exist in those files only: `(effect:perform kind (name
  expression)…)` gives an effect's result map, `(effect:note kind (name expression)…)` tells a note.
- `Spread`: `apply`, a call whose last argument is a list of further arguments.
"""

from __future__ import annotations

import re

import attrs


@attrs.frozen
class Primitive:
    """Call `op` with `least`..`most` operands (None: any number), evaluated left to right."""

    op: str
    least: int
    most: int | None


@attrs.frozen
class Defined:
    """Call the function of this name in `stdlib/<file>` with `least`..`most` arguments."""

    file: str
    least: int
    most: int | None


@attrs.frozen
class Spread:
    """Call the first argument with those that follow, the last of which is a list of arguments."""

    least: int
    most: int | None


Entry = Primitive | Defined | Spread


@attrs.frozen
class Row:
    """A library name. `examples` are expressions with what they give, as the language writes it."""

    name: str
    operands: str
    entry: Entry
    doc: str
    section: str
    examples: tuple[tuple[str, str], ...]


# A section's heading begins with `#`. A row is its name and operands, then what it is: an operation
# of `ir.primitives`, a file of `stdlib/`, or `spread`; then its meaning and its examples, indented.
# An operand that ends in `?` may be left out, one that ends in `…` stands for any number.
_TABLE = """
# Numbers
+ number… : add
* number… : mul
- number number… : sub
/ number number… : div
quotient number number : quotient
remainder number number : remainder
modulo number number : modulo
abs number : abs
min number number… : min
max number number… : max
round number : round
floor number : floor
ceiling number : ceiling
truncate number : truncate
expt number number : expt
sqrt number : sqrt
exact number : exact
inexact number : inexact
gcd number… : gcd
lcm number… : lcm
= number number… : num_eq
< number number… : lt
> number number… : gt
<= number number… : le
>= number number… : ge
zero? number : is_zero
positive? number : is_positive
negative? number : is_negative
even? number : is_even
odd? number : is_odd

# Truth, equality and kinds
not value : not
eq? value value… : eq
eqv? value value… : eq
equal? value value… : eq
null? value : is_nil
nil? value : is_nil
boolean? value : is_boolean
number? value : is_number
integer? value : is_integer
float? value : is_float
string? value : is_string
symbol? value : is_symbol
list? value : is_list
pair? value : is_pair
map? value : is_map
function? value : is_function
procedure? value : is_function

# Lists
list item… : list
cons item list : cons
first list : first
car list : first
rest list : rest
cdr list : rest
second list : second
cadr list : second
third list : third
caddr list : third
cddr list : rest_of_rest
last list : last
nth index list : nth
list-ref list index : nth
list-tail list count : drop
length list : length
empty? value : is_empty
append list… : append
reverse list : reverse
take count list : take
drop count list : drop
range start end? step? : range
member item list : member
index-of item list : index_of
assoc key list : assoc
unique list : unique
flatten list : flatten
zip list list… : zip
sort list less? : list.sexp
map function list list… : list.sexp
for-each function list list… : list.sexp
filter function list : list.sexp
reduce function start list? : list.sexp
fold-right function start list : list.sexp
find function list : list.sexp
any? function list : list.sexp
every? function list : list.sexp
count-if function list : list.sexp
sort-by function list : list.sexp
group-by function list : list.sexp
apply function argument… list : spread

# Maps
get map key default? : get_or
put map key value : put_entry
remove map key : remove
has-key? map key : has_key
keys map : keys
values map : values
entries map : entries
from-entries list : from_entries
merge map… : merge
update map key function : map.sexp
get-field value path : get_field

# Text
string-append value… : string_append
string=? string string… : string_eq
string<? string string… : string_lt
string-length string : string_length
substring string start end? : substring
split string separator? : split
lines string : lines
join list separator? : join
trim string : trim
replace string old new : replace
upper string : upper
lower string : lower
contains? string part : contains
starts-with? string prefix : starts_with
ends-with? string suffix : ends_with
format template value… : format
to-string value : to_string
string->symbol string : to_symbol
symbol->string symbol : symbol_name
parse-number string : parse_number
number->string number : to_string
json-parse string : json_parse
json-format value indent? : json_format
regex-match pattern string : regex_match
regex-find-all pattern string : regex_find_all
regex-replace pattern string replacement : regex_replace

# The world
log-message value… : world.sexp
now : world.sexp
sleep seconds : world.sexp
env name default? : world.sexp
"""


def _rows(table: str) -> list[Row]:
    rows: list[Row] = []
    section = ""
    for line in table.splitlines():
        if line.startswith("#"):
            section = line[1:].strip()
        elif line and not line.startswith(" "):
            head, _, what = line.rpartition(" : ")
            name, _, operands = head.partition(" ")
            rows.append(Row(name, operands, _entry(what, operands), "", section, ()))
        elif line:
            left, arrow, right = line.strip().partition(" => ")
            row = rows.pop()
            if arrow:
                row = attrs.evolve(row, examples=(*row.examples, (left, right)))
            else:
                row = attrs.evolve(row, doc=f"{row.doc} {left}".strip())
            rows.append(row)
    return rows


def _entry(what: str, operands: str) -> Entry:
    words = operands.split()
    required = [word for word in words if not re.search("[?…]$", word)]
    most = None if "…" in operands else len(words)
    if what == "spread":
        return Spread(len(required), most)
    if what.endswith(".sexp"):
        return Defined(what, len(required), most)
    return Primitive(what, len(required), most)


ROWS = tuple(_rows(_TABLE))
LIBRARY: dict[str, Entry] = {row.name: row.entry for row in ROWS}

"""What options and replaceable parts have in common: declared once, checked, documented, saved. A leaf."""

from .errors import Argument as Argument
from .errors import ArgumentError as ArgumentError
from .errors import ArgumentTypeError as ArgumentTypeError
from .errors import listed as listed
from .option import Choice as Choice
from .option import Either as Either
from .option import Flag as Flag
from .option import Instance as Instance
from .option import Kind as Kind
from .option import Nothing as Nothing
from .option import Number as Number
from .option import Option as Option
from .option import PartOf as PartOf
from .option import Whole as Whole
from .option import check_options as check_options
from .option import check_sizes as check_sizes
from .option import documented as documented
from .parts import Named as Named
from .parts import Part as Part
from .parts import Recipe as Recipe
from .parts import Registry as Registry
from .parts import plain as plain
from .user_warning import warn_user as warn_user

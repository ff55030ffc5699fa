"""Read `penstock.toml`: the only reader of the file, once, all problems at once."""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TypeAlias, TypeVar

from pydantic import ValidationError

from penstock.domain.source import Paging
from penstock.errors import Misconfigured
from penstock.settings.build import built_budget, built_dataset, credentials
from penstock.settings.declared import (
    BudgetTable,
    Declared,
    PenstockTable,
    as_budget_name,
    as_own_name,
)
from penstock.settings.declared_api import ApiTable, built_api
from penstock.settings.declared_auth import AccessTable, auth_secrets, built_trust
from penstock.settings.declared_dataset import (
    AnyDatasetTable,
    CsvDatasetTable,
    DatasetTable,
)
from penstock.settings.problems import (
    LONGEST_SENTENCE,
    KeyPath,
    Problem,
    Tried,
    Unfit,
    choice_sentence,
    kind_of,
    problems_of,
    spell,
    unknown_key,
)
from penstock.settings.rules import (
    Surroundings,
    broken_rules,
    circles,
    mismatches,
    name_rules,
)
from penstock.settings.secrets import Filler, redact
from penstock.settings.servers import server_passwords
from penstock.settings.tree import Settings

Table = TypeVar("Table", bound=Declared)
Tree: TypeAlias = dict[str, object]

KEPT_ADDRESS = (
    "holds a secret, and the provider's next links, which repeat it, are kept in the "
    "ledger; send it in headers or in query"
)
SECRET = ("auth", "secret")
SOURCE_TYPES = ("csv", "http")
# the quotes of word processors
CURLY = re.compile("[\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\xab\xbb]")
SECTIONS = ("penstock", "budgets", "datasets", "auth", "api")


def load(path: Path, environ: Mapping[str, str]) -> Settings:
    """Read the settings, or raise `Misconfigured` with everything that is wrong."""
    filler = Filler(environ)
    tree = filler.fill(parse(path, read(path)))
    reading = Reading(filler.problems)
    tables = tree if isinstance(tree, dict) else {}
    declaration = reading.declare(tables)
    secrets = dict(filler.secrets)
    for name, table in declaration.datasets.items():
        if not isinstance(table, DatasetTable):
            continue
        for at, value in credentials(table.source):
            spelled = spell(("datasets", name, "source", *at))
            secrets.setdefault(value, f"${{{spelled}}}")
    problems = [*reading.problems(), *secret_addresses(declaration, secrets)]
    # added after the rule above: no request carries them
    for at, value in (
        *server_passwords(tables.get("penstock")),
        *auth_secrets(tables.get("auth")),
    ):
        secrets.setdefault(value, f"${{{spell(at)}}}")
    if problems:
        told = (in_one_line(path, each, secrets) for each in problems)
        raise Misconfigured(*map(shorten, told))
    penstock = declaration.penstock
    return Settings(
        path=path,
        database=penstock.database,
        replicas=tuple(penstock.replicas),
        redis=penstock.redis,
        schema=penstock.schema_name,
        lease=penstock.lease,
        longest_wait=penstock.wait,
        spool=path.parent / penstock.spool,
        commit_timeout=penstock.commit_timeout,
        attempts=penstock.attempts,
        budgets={
            name: built_budget(name, table)
            for name, table in declaration.budgets.items()
        },
        datasets={
            name: built_dataset(
                name,
                table,
                folder=path.parent,
                spool=path.parent / penstock.spool,
            )
            for name, table in declaration.datasets.items()
        },
        auth=None if declaration.auth is None else built_trust(declaration.auth),
        api=built_api(declaration.api),
        secrets=secrets,
    )


def secret_addresses(
    declaration: "Declaration", secrets: Mapping[str, str]
) -> Iterator[Problem]:
    """Find addresses with a secret where the provider's own links are kept."""
    for name, table in declaration.datasets.items():
        if not isinstance(table, DatasetTable):
            continue
        pages, url = table.source.pages, table.source.url
        follows = pages is not None and pages.by is Paging.LINK
        if follows and redact(url, secrets) != url:
            yield ("datasets", name, "source", "url"), KEPT_ADDRESS


def read(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        raise Misconfigured(
            f"{path}: there is no such file; write one with: penstock init"
        ) from None
    except IsADirectoryError:
        raise Misconfigured(f"{path}: is a folder, not a file") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise Misconfigured(f"{path}: line {line}: is not UTF-8 text") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise Misconfigured(f"{path}: cannot be read: {reason}") from error


def parse(path: Path, text: str) -> Tree:
    # a byte order mark is no TOML, but editors write one
    text = text.removeprefix("\ufeff")
    try:
        return tomllib.loads(text, parse_float=Decimal)
    except tomllib.TOMLDecodeError as error:
        message, _, place = str(error).rpartition(" (at ")
        place = place.removesuffix(")").replace("end of document", last_line(text))
        told = message[:1].lower() + message[1:]
        raise Misconfigured(
            f"{path}: {place}: {told}{curly_hint(text, place)}"
        ) from None
    except RecursionError:
        raise Misconfigured(f"{path}: is nested too deeply") from None
    except (ValueError, ArithmeticError):
        raise Misconfigured(f"{path}: holds a number that is too long") from None


def curly_hint(text: str, place: str) -> str:
    """Name the quotes of word processors, which TOML does not know."""
    found = re.search(r"line ([0-9]+)", place)
    line = text.split("\n")[int(found[1]) - 1 :][:1] if found else []
    curly = CURLY.search(line[0]) if line else None
    if curly is None:
        return ""
    return f"; {curly[0]} is no quote of TOML: write \" or ' instead"


def last_line(text: str) -> str:
    return f"line {text.count(chr(10)) + 1}, the end of the file"


def in_one_line(path: Path, problem: Problem, secrets: Mapping[str, str]) -> str:
    """Write a problem without secrets; whole, since half of one would not be found."""
    at, sentence = problem
    line = f"{path}: {spell(at)}: {sentence}"
    # No sentence about this key shows a value. A secret that is too short may be one of
    # its own words, and hiding that word would tell the secret.
    return line if at == SECRET else redact(line, secrets)


def shorten(sentence: str) -> str:
    if len(sentence) <= LONGEST_SENTENCE:
        return sentence
    return f"{sentence[: LONGEST_SENTENCE - 1]}…"


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """The tables that could be read."""

    penstock: PenstockTable
    budgets: Mapping[str, BudgetTable]
    datasets: Mapping[str, AnyDatasetTable]
    auth: AccessTable | None
    api: ApiTable


@dataclass(slots=True)
class Reading:
    """One pass over the filled tree that goes on past what it refuses."""

    # what could not be filled; any other word about such a value would mislead
    gaps: list[Problem]
    found: list[Problem] = field(default_factory=list)

    def problems(self) -> list[Problem]:
        unfilled = {at for at, _ in self.gaps}
        rest = [each for each in self.found if each[0] not in unfilled]
        return list(dict.fromkeys([*self.gaps, *rest]))

    def declare(self, tree: Tree) -> Declaration:
        """Check every table, then the rules between those that could be read."""
        for key in tree:
            if key not in SECTIONS:
                self.found.append(((key,), unknown_key((key,), SECTIONS)))
        penstock = self.table(PenstockTable, tree.get("penstock", {}), ("penstock",))
        budgets = self.budgets(tree)
        datasets = self.datasets(tree)
        auth = (
            self.table(AccessTable, tree["auth"], ("auth",)) if "auth" in tree else None
        )
        api = self.table(ApiTable, tree.get("api", {}), ("api",))
        around = Surroundings(
            penstock=penstock,
            budgets=frozenset(names_in(tree.get("budgets"))),
            datasets=fields_by_dataset(tree),
        )
        for name, table in datasets.items():
            for at, sentence in broken_rules(table, around):
                self.found.append((("datasets", name, *at), sentence))
        self.found.extend(name_rules(around.datasets, around))
        self.found.extend(circles(datasets))
        self.found.extend(mismatches(datasets))
        return Declaration(
            penstock=penstock or PenstockTable(),
            budgets=budgets,
            datasets=datasets,
            auth=auth,
            api=api or ApiTable(),
        )

    def budgets(self, tree: Tree) -> dict[str, BudgetTable]:
        read_tables = {}
        for name, given in self.entries(tree, "budgets"):
            self.check_name(as_budget_name, name, ("budgets", name))
            table = self.table(BudgetTable, given, ("budgets", name))
            if table is not None:
                read_tables[name] = table
        return read_tables

    def datasets(self, tree: Tree) -> dict[str, AnyDatasetTable]:
        read_tables: dict[str, AnyDatasetTable] = {}
        if not tree.get("datasets"):
            told = "is required; declare a dataset as [datasets.NAME]"
            self.found.append((("datasets",), told))
        for name, written in self.entries(tree, "datasets"):
            at: KeyPath = ("datasets", name)
            self.check_name(as_own_name, name, at)
            given = self.typed(written, (*at, "source", "type"))
            table = (
                self.table(CsvDatasetTable, given, at)
                if is_csv(given)
                else self.table(DatasetTable, given, at)
            )
            if table is not None:
                read_tables[name] = table
        return read_tables

    def typed(self, given: object, at: KeyPath) -> object:
        """Return a dataset whose source is of a known type; note where it is not."""
        source = given.get("source") if isinstance(given, dict) else None
        if not isinstance(given, dict) or not isinstance(source, dict):
            return given
        written, is_of_files = source.get("type"), "files" in source
        if written in SOURCE_TYPES or (written is None and not is_of_files):
            return given
        if written is None:
            self.found.append((at, 'is required for files; add type = "csv"'))
        else:
            self.found.append((at, choice_sentence(written, [*SOURCE_TYPES])))
        # whatever else is wrong with it is told of the type that was probably meant
        meant = "csv" if is_of_files else "http"
        return {**given, "source": {**source, "type": meant}}

    def entries(self, tree: Tree, section: str) -> Iterator[tuple[str, object]]:
        given = tree.get(section, {})
        if isinstance(given, dict):
            yield from given.items()
        else:
            told = f"must be tables, such as [{section}.NAME], not {kind_of(given)}"
            self.found.append(((section,), told))

    def check_name(self, check: Callable[[str], str], name: str, at: KeyPath) -> None:
        try:
            check(name)
        except Unfit as unfit:
            self.found.append((at, str(unfit)))

    def table(self, model: type[Table], given: object, at: KeyPath) -> Table | None:
        """Read one table, or note all that is wrong with it."""
        tried: Tried = {}
        try:
            return model.model_validate(given, context=tried)
        except ValidationError as error:
            self.found.extend(problems_of(error, given, at=at, tried=tried))
            return None


def is_csv(given: object) -> bool:
    source = given.get("source") if isinstance(given, dict) else None
    return isinstance(source, dict) and source.get("type") == "csv"


def names_in(table: object) -> list[str]:
    return [*table] if isinstance(table, dict) else []


def fields_by_dataset(tree: Tree) -> dict[str, frozenset[str]]:
    """Return the names of all fields, even of datasets that could not be read."""
    datasets = tree.get("datasets")
    if not isinstance(datasets, dict):
        return {}
    return {
        name: frozenset(names_in(given.get("fields")))
        for name, given in datasets.items()
        if isinstance(given, dict)
    }

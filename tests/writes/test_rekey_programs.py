"""
Random programs that read and write by the older and the newer model while movers run: nothing is lost or doubled.
"""

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from tableorm import (
    Conflict,
    Database,
    Entity,
    EntityExists,
    EntityNotFound,
    Index,
    Mapped,
    MovedFrom,
    OutcomeUnknown,
    PreconditionFailed,
    TransactionFailed,
)
from tableorm.connection.connection import connection_of
from tableorm.rekey.chunks import WindowReport
from tableorm.rekey.phases import RekeyPhase, change_phase, load_phase
from tests.rekeys import (
    Turns,
    TurnStore,
    draw_fates,
    finalize,
    kinds_of,
    move,
    opened,
    rekeying_of,
    roll_back,
    save_by,
    set_phase,
)
from tests.torture import seeds


class Text(Entity, abstract=True):
    group: Mapped[str]
    id: Mapped[int]
    text: Mapped[str]


class Note(Text, table="RekeyPrograms", tracked=True, partition_key="{group}", row_key="o_{id:02d}"): ...


class NewNote(
    Text, table="RekeyPrograms", partition_key="n_{id:02d}", row_key="{group}", moved_from=MovedFrom(Note)
): ...


class Listed(Text, table="RekeyProgramsListed", partition_key="{group}", row_key="o_{id:02d}"):
    by_text = Index(row_key="text_{text}_{id}")


class NewListed(
    Text,
    table="RekeyProgramsNewListed",
    partition_key="n",
    row_key="o_{id:02d}_{group}",
    moved_from=MovedFrom(Listed),
):
    by_text = Index(row_key="text_{text}_{id}_{group}")


class Keyed(
    Text,
    table="RekeyProgramsKeyed",
    tracked=True,
    partition_key="{group}",
    row_key="o_{id:02d}",
    discriminator="row_key",
): ...


def keys_of(id: int) -> list[dict[str, Any]]:  # noqa: A002
    return [{"group": group, "id": id} for group in ("f", "g", "h")]


class NewKeyed(
    Text,
    table="RekeyProgramsNewKeyed",
    partition_key="n",
    row_key="{id}",
    version=2,
    moved_from=MovedFrom(
        Keyed,
        to_new=lambda old: NewKeyed(group=old.group, id=old.id, text=old.text),
        to_old=lambda new: Keyed(group=new.group, id=new.id, text=new.text),
        old_keys=keys_of,
    ),
): ...


PAIRS: list[tuple[type[Entity], type[Entity]]] = [(Note, NewNote), (Listed, NewListed), (Keyed, NewKeyed)]
IDS = (1, 2, 3)


class Ledger:
    """
    What programs were told of their writes.

    Attributes:
        born: Inserts that succeeded, by entity.
        gone: Deletes that succeeded, by entity.
        doubt: Entities of which an insert or a delete may have happened.
        added: What was added to texts, with the beginning of the text that it was added to.
        maybe: What may have been added.
    """

    def __init__(self) -> None:
        self.born, self.gone = Counter[int](), Counter[int]()
        self.doubt = set[int]()
        self.added: list[tuple[int, str, str]] = []
        self.maybe: set[str] = set()


def make(model: Any, id_: int, head: str) -> Entity:
    """Make an entity whose text begins as nobody else's."""
    entity: Entity = model(group="g", id=id_, text=f"<{head}>")
    return entity


def key(model: type[Entity], id_: int) -> dict[str, Any]:
    """Return the fields of a key."""
    fields: dict[str, Any] = {"group": "g", "id": id_}
    return {name: fields[name] for name in model.__schema__.key_fields}


async def write(
    db: Database,
    model: type[Entity],
    random: Random,
    program: str,
    ledger: Ledger,
    verbs: Sequence[str] = ("change", "save", "insert", "delete"),
) -> None:
    """Write as programs do: change what was read, insert, delete."""
    for number in range(5):
        id_, tag = random.choice(IDS), f"{program}{number}"
        verb = random.choice(verbs)
        made = make(model, id_, tag)
        try:
            if verb in ("change", "save"):

                def add(entity: Any, tag: str = tag) -> None:
                    entity.text += f"+{tag}"

                entity: Any = None if verb == "change" else await db.get(model, **key(model, id_))
                try:
                    if entity is None:
                        entity = await db.modify(model, add, **key(model, id_))
                    else:
                        add(entity)
                        await db.save(entity)
                except OutcomeUnknown:
                    ledger.maybe.add(tag)
                else:
                    ledger.added.append((id_, entity.text.partition(">")[0], tag))
            elif verb == "insert":
                await db.insert(made)
                ledger.born[id_] += 1
            else:
                await db.delete(await db.get(model, **key(model, id_)))
                ledger.gone[id_] += 1
        except (EntityExists, EntityNotFound, PreconditionFailed, Conflict):
            pass
        except OutcomeUnknown:
            ledger.doubt.add(id_)


async def read_all(db: Database, model: type[Entity]) -> dict[int, str]:
    """Return the texts of all entities."""
    found = await db.select(model).allow_scan().all()
    return {entity.__dict__["id"]: entity.__dict__["text"] for entity in found}


def check(ledger: Ledger, found: dict[int, str]) -> None:
    """Compare what is there with what the programs were told."""
    for id_ in IDS:
        left = ledger.born[id_] - ledger.gone[id_]
        if id_ not in ledger.doubt:
            assert left == (id_ in found), f"{id_} is there {id_ in found}, and should be there {left} times"
    for id_, head, tag in ledger.added:
        if id_ in found and found[id_].startswith(head + ">"):
            assert found[id_].count(f"+{tag}") == 1, f"{tag} is not once in {found[id_]}"
    for text in found.values():
        tags = text.partition(">")[2].split("+")[1:]
        assert len(tags) == len(set(tags)), f"{text} has something twice"
        assert set(tags) <= ledger.maybe | {tag for _, _, tag in ledger.added}


async def calm_down(programs: dict[str, tuple[Database, TurnStore]]) -> None:
    """Let everything arrive, and nothing fail from now on."""
    for _, network in programs.values():
        network.plan()
        await network.deliver()


def assert_done(report: WindowReport) -> None:
    """Nothing was left."""
    assert not report.failures
    assert not report.collisions


@pytest.mark.one_of(3)
@seeds(1, 1000)
@pytest.mark.parametrize("back", [False, True], ids=["forth", "back"])
@pytest.mark.parametrize("pair", PAIRS, ids=["plain", "indexed", "keyed"])
async def test_programs_beside_movers(pair: tuple[type[Entity], type[Entity]], back: bool, seed: int) -> None:
    """
    Programs of both models write beside two movers, one of which is killed, on networks that lose requests and
    replies: each write that succeeded is there once, in the end of the re-key or after the way back.
    """
    old, new = pair
    random = Random(f"{seed} {back} {old.__name__}")
    turns, ledger = Turns(random), Ledger()
    faults = random.choice([0, 0, 0.05, 0.2])
    names = ["mover1", "mover2", "new1", "new2", "old1"]
    async with opened(turns, names, old, new) as programs:
        first = programs["old1"][0]
        for id_ in IDS[:2]:
            await first.insert(make(old, id_, str(id_)))
            ledger.born[id_] += 1
        connection, rekeying = connection_of(first), rekeying_of(new)
        moving = await change_phase(connection, rekeying, await load_phase(connection, rekeying), RekeyPhase.MOVE)
        for name, (db, network) in programs.items():
            # A program that has not heard of the phase yet writes at older keys.
            set_phase(
                db, new, random.choice([RekeyPhase.EXPAND, RekeyPhase.MOVE]) if name == "new1" else RekeyPhase.MOVE
            )
            network.plan(*draw_fates(random, faults, late=name in names[:2]))

        await turns.run(
            {
                **{name: move_all(programs[name][0], new, 3) for name in names[:2]},
                **{name: write(programs[name][0], new, random, name, ledger) for name in names[2:4]},
                "old1": write(programs["old1"][0], old, random, "old1", ledger),
            },
            killed=random.sample(names[:2], random.randrange(2)),
        )
        await calm_down(programs)
        db = programs["new1"][0]
        set_phase(db, new, RekeyPhase.MOVE)
        for _ in range(2):
            assert_done(await move(db, new))
        found = await read_all(db, new)
        check(ledger, found)
        assert not await read_all(db, old)
        if back:
            await change_phase(connection, rekeying, moving, RekeyPhase.BACK)
            for each, network in programs.values():
                set_phase(each, new, RekeyPhase.BACK)
                network.plan(*draw_fates(random, faults, late=network is programs[names[0]][1]))

            async def roll_all_back(db: Database) -> None:
                for _ in range(3):
                    await roll_back(db, new)

            await turns.run(
                {
                    **{name: roll_all_back(programs[name][0]) for name in names[:2]},
                    "new1": write(db, new, random, "back1", ledger),
                    "old1": write(programs["old1"][0], old, random, "back2", ledger),
                },
                killed=random.sample(names[:2], random.randrange(2)),
            )
            await calm_down(programs)
            for _ in range(2):
                assert_done(await roll_back(db, new))
            found = await read_all(db, old)
            check(ledger, found)
            last = old
        else:
            set_phase(db, new, RekeyPhase.SEALED)
            assert_done(await finalize(db, new))
            assert await read_all(db, new) == found
            last = new

        kind = str(last.__schema__.kind_properties.get("EntityType", "none"))
        entries = bool(last.__schema__.derived)
        kinds = Counter(each.partition(" ")[2] for each in await kinds_of(db, new))
        assert kinds == Counter({kind: len(found), **({f"{kind}#by_text": len(found)} if entries and found else {})})


async def change_by(db: Database, model: type[Entity], random: Random, program: str, ledger: Ledger) -> None:
    """Change entities by every verb that can, on a network that does anything."""
    for number in range(6):
        id_, tag = random.choice(IDS), f"{program}{number}"
        entity: Any = await db.get(model, **key(model, id_))
        head = entity.text.partition(">")[0]
        entity.text += f"+{tag}"
        verb = random.choice(["save", "merge", "replace", "transaction", "bulk"])
        try:
            await save_by(db, verb, entity)
        except OutcomeUnknown:
            ledger.maybe.add(tag)
        except (Conflict, TransactionFailed) as error:
            if isinstance(error.__cause__, EntityNotFound):
                raise
        else:
            ledger.added.append((id_, head, tag))


@seeds(1, 1000)
@pytest.mark.parametrize("pair", PAIRS, ids=["plain", "indexed", "keyed"])
async def test_changes_on_bad_networks(pair: tuple[type[Entity], type[Entity]], seed: int) -> None:
    """
    Requests and replies of writers too are lost, late or repeated while a mover runs: a change that succeeded is there
    once, one that failed is not, and one in doubt is there at most once.
    """
    old, new = pair
    random = Random(f"changes {seed} {old.__name__}")
    turns, ledger, names = Turns(random), Ledger(), ["mover", "new1", "new2", "old"]
    async with opened(turns, names, old, new) as programs:
        for id_ in IDS:
            await programs["old"][0].insert(make(old, id_, str(id_)))
            ledger.born[id_] += 1
        for db, network in programs.values():
            set_phase(db, new, RekeyPhase.MOVE)
            network.plan(*draw_fates(random, random.choice([0.05, 0.2, 0.4]), late=True))
        await turns.run(
            {
                "mover": move_all(programs["mover"][0], new, 2),
                **{name: change_by(programs[name][0], new, random, name, ledger) for name in names[1:3]},
                "old": write(programs["old"][0], old, random, "old", ledger, ("change", "save")),
            }
        )
        await calm_down(programs)
        db = programs["new1"][0]
        await move_all(db, new, 2)
        found = await read_all(db, new)
        assert found.keys() == set(IDS)
        check(ledger, found)


async def move_all(db: Database, model: type[Entity], rounds: int) -> None:
    """Run a mover several times."""
    for _ in range(rounds):
        report = await move(db, model)
        assert not report.collisions

"""
Agents, whom an index and lists find by their desks, in other partitions than their own. Old programs knew neither.
"""

from tableorm import Damage, Database, Entity, Index, IndexList, Mapped

TABLE = "RunAgents"
DESKS = 5


class AnyAgent(Entity, table=TABLE, abstract=True, partition_key="office_{office:02d}", row_key="agent_{id:05d}"):
    office: Mapped[int]
    id: Mapped[int]
    desk: Mapped[int]


class AgentOfOld(AnyAgent, kind="Agent"):
    pass


class Agent(AnyAgent):
    by_desk = Index(partition_key="desk_{desk:02d}", row_key="of_{office:02d}_{id:05d}", consistency="eventual")
    at_desk = IndexList(partition_key="at_{desk:02d}", row_key="agents", consistency="eventual")


async def engage(db: Database, count: int) -> None:
    """Make the table, with agents who were there before the index."""
    await db.create_tables(AgentOfOld)
    async with db.bulk(errors="report") as bulk:
        for number in range(count):
            await bulk.insert(AgentOfOld(office=number % 4, id=number, desk=number % DESKS))
    assert bulk.report.failures == 0


async def find_missing(db: Database, count: int, *, listed: bool) -> list[str]:
    """Return what is wrong with what is found by the lists, or by the index."""
    problems: list[str] = []
    for desk in range(DESKS):
        if listed:
            agents = await db.lookup(Agent.at_desk, desk=desk)
        else:
            agents = await db.select(Agent.by_desk).where(Agent.desk == desk).all()
        found, wanted = sorted(agent.id for agent in agents), [*range(desk, count, DESKS)]
        problems += [] if found == wanted else [f"at desk {desk} are {found}, and {wanted} should be"]
    return problems


async def find_problems(db: Database, count: int, *, listed: bool) -> list[str]:
    """Return what is wrong when nobody has written but those who built, and no worker has worked."""
    problems, audit = await find_missing(db, count, listed=listed), await db.audit(Agent)
    # What a decision row has left to do is done, and a worker takes the row out.
    return problems + [str(each) for each in audit.findings if each.damage is not Damage.UNFINISHED]

"""The tools that an agent gets, asked by a real client over standard input and output."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

from outlay.agents.server import server, skill
from outlay.evaluating.verdict import VerdictKind

mcp = pytest.importorskip("mcp")

TOOLS = {"init", "edit", "check", "plan_log", "train", "evaluate", "frontier", "report", "score", "simulate"}
SMALL = "\n[train]\nlayers = [16, 8]\nbatch = 256\nepochs = 0.1\nmin_steps = 300\nfolds = 1\n"


class Agent:
    """A client that calls one tool after the other, on one connection."""

    def __init__(self, folder: Path, client: Any, portal: BlockingPortal) -> None:
        self.folder, self.progress = folder, list[float]()
        self._client, self._portal = client, portal

    def call(self, tool: str, **arguments: Any) -> Any:
        """The tool's structured result; its words where it is an error."""
        answer = self._portal.call(partial(self._client.call_tool, tool, arguments, progress_callback=self._tell))
        if answer.is_error:
            return answer.content[0].text
        return answer.structured_content

    async def _tell(self, done: float, _total: float | None, _words: str | None) -> None:
        self.progress.append(done)


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    from mcp.client.stdio import StdioServerParameters, stdio_client

    folder, outlay = tmp_path_factory.mktemp("agent"), str(Path(sys.executable).with_name("outlay"))
    # A client hands on few variables by itself: neither the tests' count of looks nor their compiled programs.
    parameters = StdioServerParameters(command=outlay, args=["mcp"], env=dict(os.environ), cwd=folder)
    with (folder / "stderr.txt").open("a") as errors, start_blocking_portal() as portal:
        connected = mcp.Client(stdio_client(parameters, errlog=errors))
        with portal.wrap_async_context_manager(connected) as client:
            assert client.instructions == skill()
            yield Agent(folder, client, portal)


def test_the_tools_are_the_verbs_and_say_what_they_take() -> None:
    async def listed() -> list[Any]:
        return list(await server().list_tools())

    tools = anyio.run(listed)
    assert {tool.name for tool in tools} == TOOLS
    for tool in tools:
        assert tool.description
        assert "context" not in tool.input_schema["properties"]
        assert "context:" not in tool.description


def test_the_skill_names_every_verdict() -> None:
    named = {kind.value for kind in VerdictKind if f"`{kind.value}`" in skill()}
    assert named == {kind.value for kind in VerdictKind}


def test_a_campaign_file_can_be_changed_and_not_be_spoilt(agent: Agent) -> None:
    agent.call("simulate", campaign="habit", out="edited", users=100)
    path = agent.folder / "edited" / "campaign.toml"
    before = path.read_text(encoding="utf-8")
    after = before.replace("at_most = 2.2", "at_most = 1.5")
    changed = agent.call("edit", campaign="edited/campaign.toml", text=after)["changed"]
    assert [line[0] for line in changed] == ["-", "+"]
    assert path.read_text(encoding="utf-8") == after
    assert "at_mots" in agent.call("edit", campaign="edited/campaign.toml", text=after.replace("at_most", "at_mots"))
    assert path.read_text(encoding="utf-8") == after
    assert "none.toml" in agent.call("edit", campaign="none.toml", text=after)
    assert not (agent.folder / "none.toml").exists()


def test_an_agent_gets_from_a_log_to_a_verdict(agent: Agent) -> None:
    """With the tools alone: simulate, guess roles, edit, check, plan, train, evaluate, try other budgets, report."""
    made = agent.call("simulate", campaign="habit", out="habit", users=2000)
    assert Path(agent.folder / made["campaign"]).exists()
    drafted = agent.call("init", log="habit/log.parquet", out="draft.toml")
    assert {column["column"]: column["role"] for column in drafted["columns"]}["coupon"] == "action"
    assert (agent.folder / "draft.toml").read_text() == drafted["text"]
    text = (agent.folder / made["campaign"]).read_text(encoding="utf-8") + SMALL
    assert agent.call("edit", campaign=made["campaign"], text=text)["changed"]
    checked = agent.call("check", campaign=made["campaign"])
    assert checked["users"] == 2000
    assert not checked["blocks"]
    assert agent.call("plan_log", campaign=made["campaign"], gain=0.02)["sizes"][-1]["users_needed"] > 2000
    assert agent.call("train", campaign=made["campaign"], out="run")["members"]
    assert max(agent.progress) > 0.5
    judged = agent.call("evaluate", run="run")
    assert judged["verdict"]["kind"] in set(VerdictKind)
    assert judged["verdict"]["words"]
    assert any(estimate["policy"] == "mixture" for estimate in judged["estimates"])
    assert len(agent.call("frontier", run="run", budgets=[1.8, 2.0])["requested"]) == 2
    assert (agent.folder / agent.call("report", run="run")["page"]).exists()


def test_what_is_wrong_comes_back_as_a_person_would_read_it(agent: Agent) -> None:
    assert "no-such.toml" in agent.call("check", campaign="no-such.toml")
    assert "must be between 0 and 1" in agent.call("plan_log", campaign="habit/campaign.toml", gain=3.0)
    errors = (agent.folder / "stderr.txt").read_text()
    assert "Traceback" not in errors

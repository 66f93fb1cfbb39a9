import { expect, test } from "vitest";
import { tgArping } from "../../../../../src/agent/triggers/diagnostics/tg-arping.ts";
import { systemClock } from "../../../../../src/host/clock.ts";
import { hostExec } from "../../../../../src/host/process/exec.ts";
import { hostFiles } from "../../../../../src/host/files/files.ts";
import { TgArping } from "../../../../../src/protocol/triggers/bodies.ts";
import { fakeTools } from "../../../../support/fake-tools.ts";
import { rig } from "../../../../unit/agent/triggers/rig.ts";

// As printed by arping 2.23.
const ANSWERED = `ARPING 10.77.0.2
42 bytes from fa:6f:48:4c:79:a9 (10.77.0.2): index=0 time=8.372 usec

--- 10.77.0.2 statistics ---
1 packets transmitted, 1 packets received,   0% unanswered (0 extra)
rtt min/avg/max/std-dev = 0.005/0.007/0.008/0.001 ms
`;

const stage = (script: string) => {
  const tools = fakeTools({ arping: script });
  return { tools, ...rig([tgArping(tools.exec, hostFiles())]) };
};

test("sends five probes in ten seconds, and passes on the tool's output", async () => {
  const { run, tools } = stage(`cat <<'X'\n${ANSWERED}X`);
  expect(await run("tg-arping", { body: { iface: "lo", host: "10.77.0.2", name: "tg-arping" } })).toEqual({
    body: { output: { message: ANSWERED, exitCode: "0", truncated: false } },
  });
  expect(tools.calls("arping")).toEqual(["-i lo -c 5 -w 10 -- 10.77.0.2"]);
});

test("silence is a result", async () => {
  const { run } = stage("echo Timeout; exit 1");
  expect(await run("tg-arping", { body: { iface: "lo", host: "10.77.0.9" } })).toMatchObject({
    body: { output: { message: "Timeout\n", exitCode: "1" } },
  });
});

test("refuses an unknown link, another program of this name, and a missing one", async () => {
  const { run, tools } = stage("echo \"arping: invalid option -- 'i'\" >&2; exit 2");
  const newer = stage("printf 'arping: ' >&2; sleep 0.1; printf \"invalid argument: 'lo'\\n\" >&2; exit 1");
  expect(await newer.run("tg-arping", { body: { iface: "lo", host: "10.77.0.2" } })).toMatchObject({
    error: { code: "tool-missing" },
  });
  expect(await run("tg-arping", { body: { iface: "nope0", host: "10.77.0.2" } })).toMatchObject({
    error: { code: "not-found", message: "no interface nope0", details: { field: "iface" } },
  });
  expect(tools.calls("arping")).toEqual([]);
  expect(await run("tg-arping", { body: { iface: "lo", host: "10.77.0.2" } })).toMatchObject({
    error: { code: "tool-missing", details: { tool: "arping", package: "arping" } },
  });
  const bare = rig([tgArping(hostExec(systemClock(), "/nowhere"), hostFiles())]);
  expect(await bare.run("tg-arping", { body: { iface: "lo", host: "10.77.0.2" } })).toMatchObject({
    error: { code: "tool-missing", message: "arping is not installed: on Debian it is in the package arping" },
  });
});

test("it is for appliances", async () => {
  const tools = fakeTools({ arping: "echo never" });
  const agent = rig([tgArping(tools.exec, hostFiles())], { node: { type: "Agent", state: "ACTIVE" } });
  expect(await agent.run("tg-arping", { body: { iface: "lo", host: "10.77.0.2" } })).toMatchObject({
    error: { code: "not-supported" },
  });
});

test.each([
  [{}, "iface"],
  [{ host: "10.0.0.1" }, "iface"],
  [{ iface: "-i", host: "10.0.0.1" }, "iface"],
  [{ iface: "../lo", host: "10.0.0.1" }, "iface"],
  [{ iface: "a".repeat(16), host: "10.0.0.1" }, "iface"],
  [{ iface: "lo" }, "host"],
  [{ iface: "lo", host: "example.net" }, "host"],
  [{ iface: "lo", host: "::1" }, "host"],
  [{ iface: "lo", host: "10.0.0.1/24" }, "host"],
  [{ iface: "lo", host: "-S" }, "host"],
  [{ iface: "lo", host: "10.0.0.1\n" }, "host"],
])("refuses %j for its %s", (body, field) => {
  expect(TgArping.safeParse(body).error?.issues[0]?.path).toEqual([field]);
});

import { expect, test } from "vitest";
import { parseRouteTo, routeFinder } from "../../../../../src/host/network/ip/route-to.ts";
import { fakeTools } from "../../../../support/fake-tools.ts";

const signal = new AbortController().signal;

// As printed by iproute2 6.1.
const GET =
  '[{"type":"1","dst":"10.9.1.1","gateway":"10.5.0.9","dev":"v0","table":"254","prefsrc":"10.5.0.1","flags":[],"uid":0,"cache":[]}]\n \n';
const MATCHED =
  '[{"type":"1","dst":"10.9.0.0/16","gateway":"10.5.0.9","dev":"v0","table":"254","protocol":"218","scope":"0","metric":50,"flags":[]}]\n';

test("the path and its route", () => {
  expect(parseRouteTo("10.9.1.1", GET + MATCHED)).toEqual({
    schema: 1,
    to: "10.9.1.1",
    kind: "unicast",
    via: "10.5.0.9",
    link: "v0",
    source: "10.5.0.1",
    table: 254,
    matched: { destination: "10.9.0.0/16", protocol: 218, metric: 50, isOurs: true },
  });
});

test("an own address; the default route; a kernel that does not report the route", () => {
  const local =
    '[{"type":"2","dst":"10.5.0.1","dev":"lo","table":"255","prefsrc":"10.5.0.1","flags":[],"uid":0,"cache":["local"]}]';
  expect(parseRouteTo("10.5.0.1", local)).toEqual({
    schema: 1,
    to: "10.5.0.1",
    kind: "local",
    link: "lo",
    source: "10.5.0.1",
    table: 255,
  });
  const byDefault = MATCHED.replace("10.9.0.0/16", "default").replace('"218"', '"3"').replace('"metric":50,', "");
  expect(parseRouteTo("9.9.9.9", GET + byDefault).matched).toEqual({
    destination: "0.0.0.0/0",
    protocol: 3,
    metric: 0,
    isOurs: false,
  });
});

test.each(["", "nonsense\n", "{}\n", "[]\n"])("%j is not an answer", (text) => {
  expect(() => parseRouteTo("10.0.0.1", text)).toThrow(expect.objectContaining({ code: "bad-output" }));
});

test.each([
  ["RTNETLINK answers: Network is unreachable", "none"],
  ["RTNETLINK answers: No route to host", "unreachable"],
  ["RTNETLINK answers: Permission denied", "prohibit"],
  ["RTNETLINK answers: Invalid argument", "blackhole"],
])("%s means %s", async (output, kind) => {
  const tools = fakeTools({ ip: `cat >/dev/null; echo '${output}' >&2; exit 2` });
  expect(await routeFinder(tools.exec)("10.8.0.1", signal)).toEqual({ schema: 1, to: "10.8.0.1", kind });
});

test("reports any other error of ip", async () => {
  const tools = fakeTools({ ip: "cat >/dev/null; echo 'Cannot open netlink socket' >&2; exit 1" });
  const failure = { code: "exec-failed", message: "ip: Cannot open netlink socket" };
  await expect(routeFinder(tools.exec)("10.8.0.1", signal)).rejects.toMatchObject(failure);
});

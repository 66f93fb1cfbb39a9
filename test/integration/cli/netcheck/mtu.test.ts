import { expect, test } from "vitest";
import { HostError } from "../../../../src/errors.ts";
import { systemClock } from "../../../../src/host/clock.ts";
import { hostExec } from "../../../../src/host/process/exec.ts";
import { checkMtu } from "../../../../src/cli/netcheck/mtu.ts";
import { scriptedExec, someTools } from "../../../unit/cli/netcheck/rig.ts";

/** A path that passes packets of this size, headers included. */
function way(mtu: number, headers: number) {
  return scriptedExec((args) => (Number(args[args.indexOf("-s") + 1]) + headers <= mtu ? 0 : 1));
}

test.each([
  [9000, "pass", "1500 bytes get there whole"],
  [1500, "pass", "1500 bytes get there whole"],
  [1450, "pass", "1420 bytes get there whole, and no more"],
  [1280, "pass", "1280 bytes get there whole, and no more"],
  [1279, "fail", "1280 bytes do not get there whole"],
  [0, "skip", "192.0.2.1 does not answer ping"],
])("on a path of %i bytes: %s", async (mtu, status, message) => {
  expect(await checkMtu("192.0.2.1", undefined, someTools({ exec: way(mtu, 28) }))).toMatchObject({ status, message });
});

test("counts the longer headers of IPv6, and keeps the source", async () => {
  const exec = way(1280, 48);
  expect(await checkMtu("2001:db8::1", "2001:db8::2", someTools({ exec, timeoutMs: 3000 }))).toMatchObject({
    status: "pass",
  });
  expect(exec.runs[0]).toBe("ping -n -c 1 -W 2 -M do -s 1452 -I 2001:db8::2 -- 2001:db8::1");
});

test("skips on a machine where ping is missing, or hangs", async () => {
  const missing = someTools({ exec: hostExec(systemClock(), "/nowhere") });
  expect(await checkMtu("127.0.0.1", undefined, missing)).toMatchObject({
    status: "skip",
    message: "ping is not installed",
  });
  const hung = someTools({ exec: scriptedExec(() => new HostError("timeout", "ping did not end")) });
  expect(await checkMtu("127.0.0.1", undefined, hung)).toMatchObject({ status: "skip" });
});

test("with the real tool, to this machine", async () => {
  const tools = someTools({ exec: hostExec(systemClock()) });
  expect(await checkMtu("127.0.0.1", undefined, tools)).toMatchObject({ status: "pass" });
});

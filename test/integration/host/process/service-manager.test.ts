import { fstatSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { serviceManager, supervisionOf, writesToJournal } from "../../../../src/host/process/service-manager.ts";
import { listenForNotices } from "../../../support/notices.ts";
import { tempDir } from "../../../support/temp-dir.ts";

test.each([
  [{}, undefined, undefined],
  [{ NOTIFY_SOCKET: "" }, undefined, undefined],
  [{ NOTIFY_SOCKET: "/run/n" }, "/run/n", undefined],
  [{ NOTIFY_SOCKET: "/run/n", WATCHDOG_USEC: "60000000" }, "/run/n", 60_000],
  [{ NOTIFY_SOCKET: "/run/n", WATCHDOG_USEC: "60000000", WATCHDOG_PID: "42" }, "/run/n", 60_000],
  [{ NOTIFY_SOCKET: "/run/n", WATCHDOG_USEC: "60000000", WATCHDOG_PID: "43" }, "/run/n", undefined],
  [{ NOTIFY_SOCKET: "/run/n", WATCHDOG_USEC: "0" }, "/run/n", undefined],
  [{ NOTIFY_SOCKET: "/run/n", WATCHDOG_USEC: "a minute" }, "/run/n", undefined],
  [{ WATCHDOG_USEC: "60000000" }, undefined, undefined],
])("reads the service manager from %j", (env, notifySocket, watchdogMs) => {
  expect(supervisionOf(env, 42)).toEqual({ notifySocket, watchdogMs });
});

test("recognizes the journal by the file that it writes to", () => {
  const { dev, ino } = fstatSync(process.stdout.fd);
  expect(writesToJournal({ JOURNAL_STREAM: `${dev}:${ino}` })).toBe(true);
  expect(writesToJournal({ JOURNAL_STREAM: `${dev}:${ino}1` })).toBe(false);
  expect(writesToJournal({})).toBe(false);
});

test("notifies over its socket, in a line that cannot contain another assignment", async () => {
  const notifySocket = join(tempDir(), "notify");
  const received = await listenForNotices(notifySocket);
  const manager = serviceManager({ notifySocket });
  manager.ready("Serving\nMAINPID=1");
  manager.alive(`Connected ${"x".repeat(500)}`);
  manager.stopping();
  const [ready, alive = "", stopping] = await received.of(3);
  expect(ready).toBe("READY=1\nSTATUS=Serving MAINPID=1");
  expect(alive).toMatch(/^WATCHDOG=1\nSTATUS=Connected x{190}$/);
  expect(stopping).toBe("STOPPING=1\nSTATUS=Stopping");
});

test("notifies nothing without one, and one that has exited is no failure", () => {
  serviceManager({ notifySocket: undefined }).ready("Serving");
  serviceManager({ notifySocket: join(tempDir(), "gone") }).alive("Serving");
});

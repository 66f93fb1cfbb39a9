import { describe, expect, test } from "vitest";
import { InputError, SessionError } from "../../../src/errors.ts";
import { rootLogger, withPriority } from "../../../src/host/log.ts";
import { FakeClock } from "../../support/fake-clock.ts";

function logger(level = "debug") {
  const written: string[] = [];
  return { written, ...rootLogger({ level, destination: { write: (line) => void written.push(line) } }) };
}

describe("the log", () => {
  test("writes JSON lines with time and level by name, and keeps them numbered", () => {
    const { log, memory, written } = logger("info");
    log.debug("not this");
    log.child({ component: "session" }).info({ attempt: 2 }, "opened");
    expect(JSON.parse(written[0] ?? "")).toMatchObject({
      level: "info",
      component: "session",
      attempt: 2,
      msg: "opened",
    });
    expect(written[0]).toMatch(/"time":"\d{4}-\d\d-\d\dT[\d:.]+Z"/);
    expect(memory.last(10)).toEqual([{ seq: 1, text: written[0]?.trimEnd() }]);
  });

  test("writes an error and its causes once, with type and stack", () => {
    const { log, written } = logger();
    const cause = new Error("it is busy", { cause: new Error("a disk is full") });
    log.warn({ err: new Error("the overlay refuses: it is busy: a disk is full", { cause }) }, "x");
    log.warn({ err: new Error("not saved", { cause }) }, "x");
    log.warn({ err: "no error" }, "x");
    const [repeated, added, other] = written.map((line) => (JSON.parse(line) as { err: Record<string, string> }).err);
    expect(repeated).toMatchObject({ type: "Error", message: "the overlay refuses: it is busy: a disk is full" });
    expect(repeated?.["stack"]).toContain("caused by: Error: it is busy");
    expect(added).toMatchObject({ message: "not saved: it is busy: a disk is full" });
    expect(other).toBe("no error");
  });

  test("writes errors of the peer without a stack and within limits", () => {
    const { log, written } = logger();
    log.warn({ err: new InputError("too-deep", "x".repeat(100_000), { cause: new Error("inner") }) }, "x");
    log.warn({ err: new SessionError("busy", "later", { details: { id: 7 } }) }, "x");
    const [long, short] = written.map((line) => (JSON.parse(line) as { err: Record<string, unknown> }).err);
    expect(long).toEqual({ type: "InputError", code: "too-deep", message: "x".repeat(4096) });
    expect(short).toEqual({ type: "SessionError", code: "busy", message: "later", details: { id: 7 } });
  });

  test("holds no secret, at the top level or nested", () => {
    const { log, written } = logger();
    for (const name of ["authorization", "password", "secret", "token", "license", "ticket", "jws", "d", "apiKey"]) {
      log.info({ [name]: "hunter2" }, "x");
      log.info({ request: { [name]: "hunter2" } }, "x");
    }
    expect(written).toHaveLength(18);
    expect(written.join("")).not.toContain("hunter2");
  });

  test("keeps the newest lines within its limits", () => {
    const { log, memory } = logger();
    for (let i = 0; i < 3000; i += 1) log.debug(`line ${i % 3}`);
    expect(memory.last(5000)).toHaveLength(2000);
    expect(memory.last(2).map(({ seq }) => seq)).toEqual([2999, 3000]);
    for (let i = 0; i < 20; i += 1) log.info({ filling: "x".repeat(100_000) }, "x");
    expect(memory.last(5000).length).toBeLessThanOrEqual(5);
    expect(memory.last(0)).toEqual([]);
  });

  test("limits lines of one kind, and reports the number of dropped ones after a minute", async () => {
    const clock = new FakeClock();
    const written: string[] = [];
    const { log, memory } = rootLogger({
      level: "debug",
      destination: { write: (line) => void written.push(line) },
      clock,
    });
    const session = log.child({ component: "session" });
    for (let i = 0; i < 250; i += 1) session.warn({ attempt: i, output: '","msg":"other' }, "the session ended");
    for (let i = 0; i < 3; i += 1) log.warn("the session ended");
    for (let i = 0; i < 1200; i += 1) log.debug({ step: i }, "step");
    expect(written).toHaveLength(100 + 3 + 1000);
    expect(memory.last(2000)).toHaveLength(written.length);
    await clock.advance(60_000);
    expect(written.slice(1103).map((line) => JSON.parse(line) as unknown)).toMatchObject([
      { level: "warn", component: "session", repeated: 150, seconds: 60, msg: "the session ended" },
      { level: "debug", repeated: 200, seconds: 60, msg: "step" },
    ]);
    session.warn({ attempt: 250 }, "the session ended");
    expect(written).toHaveLength(1106);
  });

  test("limits a flood of always new lines, too", async () => {
    const clock = new FakeClock();
    const written: string[] = [];
    const { log } = rootLogger({ level: "info", destination: { write: (line) => void written.push(line) }, clock });
    for (let i = 0; i < 5000; i += 1) log.warn(`no constant message ${i}`);
    expect(written).toHaveLength(512 + 100);
    await clock.advance(60_000);
    expect(JSON.parse(written.at(-1) ?? "")).toMatchObject({ level: "warn", repeated: 5000 - 612 });
  });

  test("shows lines below its level, and without a limit, to a tap only", () => {
    const { log, memory, written } = logger("warn");
    const child = log.child({ component: "session" });
    child.debug("before");
    const seen: string[] = [];
    const stop = memory.tap((text) => void seen.push(text));
    child.debug({ token: "hunter2" }, "why");
    for (let i = 0; i < 200; i += 1) child.warn("again");
    stop();
    child.debug("after");
    expect(JSON.parse(seen[0] ?? "")).toMatchObject({
      level: "debug",
      component: "session",
      token: "[removed]",
      msg: "why",
    });
    expect(seen).toHaveLength(201);
    expect(written).toHaveLength(100);
    expect(written.join("")).not.toContain("why");
    expect(memory.last(1000)).toHaveLength(100);
  });

  test("is followed until cancelled", () => {
    const { log, memory } = logger();
    const seen: number[] = [];
    const stop = memory.follow(({ seq }) => void seen.push(seq));
    log.info("a");
    stop();
    log.info("b");
    expect(seen).toEqual([1]);
  });
});

test.each([
  ["error", 3],
  ["warn", 4],
  ["info", 6],
  ["debug", 7],
])("gives the journal the priority of %s: %i", (level, priority) => {
  let line = "";
  const { log } = rootLogger({ level: "debug", destination: { write: (text) => void (line = text) } });
  log[level as "info"]("something");
  expect(withPriority(line).startsWith(`<${priority}>{"level":"${level}",`)).toBe(true);
});

import { join } from "node:path";
import { expect, test } from "vitest";
import { FaultList } from "../../../../src/agent/faults/fault.ts";
import { hostFiles } from "../../../../src/host/files/files.ts";
import { tempDir } from "../../../support/temp-dir.ts";
import { FakeClock } from "../../../support/fake-clock.ts";
import { MovableClock } from "../../../support/control-plane/running-controller.ts";

const lost = (file: string) => ({ file, isRecovered: false });

test("a damaged file is repaired once it is written again, and only that one", async () => {
  const clock = new MovableClock();
  const faults = new FaultList(clock, () => undefined);
  const dir = tempDir();
  const files = faults.watched(hostFiles());
  faults.add("identity-lost", "the keys are gone");
  faults.addDamage(dir, [lost("a.json"), lost("b.json")]);
  expect(faults.all.map(({ mendedAt }) => mendedAt)).toEqual([undefined, undefined, undefined]);
  await files.writeAtomic(join(dir, "a.json"), "{}", 0o600);
  const [, a, b] = faults.all;
  expect(a).toMatchObject({ code: "damaged-file", mendedAt: expect.any(Number) as number });
  expect(b?.mendedAt).toBeUndefined();
  clock.advance(1000);
  await files.writeAtomic(join(dir, "a.json"), "{}", 0o600);
  expect(faults.all[1]).toEqual(a);
});

test("what was rebuilt before the report of its damage is repaired at once; a failed write repairs nothing", async () => {
  const faults = new FaultList(new MovableClock(), () => undefined);
  const dir = tempDir();
  const files = faults.watched(hostFiles());
  await files.writeAtomic(join(dir, "a.json"), "{}", 0o600);
  await expect(files.writeAtomic(join(dir, "none", "b.json"), "{}", 0o600)).rejects.toThrow();
  faults.addDamage(dir, [lost("a.json"), lost("none/b.json")]);
  expect(faults.all.map(({ mendedAt }) => mendedAt !== undefined)).toEqual([true, false]);
});

test("a repaired file may be damaged again", () => {
  const faults = new FaultList(new MovableClock(), () => undefined);
  faults.add("damaged-file", "once", "/a.json");
  faults.settled("/a.json");
  faults.add("damaged-file", "twice", "/a.json");
  expect(faults.all.map(({ mendedAt }) => mendedAt !== undefined)).toEqual([true, false]);
});

test("a known fault is reported once more by its reader, and then is not another fault", () => {
  const faults = new FaultList(new MovableClock(), () => undefined);
  const tell = faults.damageBelow("/state");
  faults.foresee("/state", [lost("a.json")]);
  tell(lost("a.json"));
  expect(faults.all).toHaveLength(1);
  tell(lost("a.json"));
  tell(lost("b.json"));
  expect(faults.all.map(({ message }) => message.split(" ")[0])).toEqual(["a.json", "a.json", "b.json"]);
});

test("logs every fault, and keeps a limited number", () => {
  const reported: string[] = [];
  const faults = new FaultList(new MovableClock(), (code) => void reported.push(code));
  for (let at = 0; at < 150; at += 1) faults.add("x", "y");
  expect([reported.length, faults.all.length]).toEqual([150, 100]);
});

test.each([86_400_000, -86_400_000])(
  "the age of a fault does not depend on the wall clock, set by %i ms",
  async (ms) => {
    const clock = new FakeClock();
    const faults = new FaultList(clock, () => undefined);
    faults.add("damaged-file", "a", "/a.json");
    await clock.advance(5000);
    faults.settled("/a.json");
    await clock.advance(1000);
    clock.setWall(clock.now() + ms);
    const [fault] = faults.all;
    expect(fault).toMatchObject({ since: clock.now() - 6000, mendedAt: clock.now() - 1000 });
  },
);

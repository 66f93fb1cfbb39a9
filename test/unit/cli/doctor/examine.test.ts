import { expect, test } from "vitest";
import { doctorTools, examine } from "../../../../src/cli/doctor/examine.ts";
import { pass, type DoctorReport } from "../../../../src/cli/doctor/result.ts";
import type { CheckFamily } from "../../../../src/cli/doctor/tools.ts";
import { HostError } from "../../../../src/errors.ts";
import { someCall } from "../../../support/fake-call.ts";
import { someDirectories } from "../../../support/local-agent.ts";

const good: CheckFamily = { name: "good", run: () => Promise.resolve([pass("one", "well")]) };

async function examined(families: readonly CheckFamily[], ms?: number): Promise<DoctorReport> {
  await using directories = await someDirectories();
  return await examine(families, doctorTools(someCall(directories, {}).call), ms);
}

test.each<[string, CheckFamily["run"], string]>([
  ["throws", () => Promise.reject(new Error("a bug")), "fail check-failed"],
  [
    "throws at once",
    () => {
      throw new Error("a bug");
    },
    "fail check-failed",
  ],
  ["may not look", () => Promise.reject(new HostError("access-denied", "no")), "skip access-denied"],
  ["never ends", () => new Promise(() => undefined), "fail check-hangs"],
])("a family that %s does not hide the others", async (_, run, expected) => {
  const { checks } = await examined([{ name: "bad", run }, good], 50);
  expect(checks.map(({ family, status, code }) => `${family} ${status} ${code}`)).toEqual([
    `bad ${expected}`,
    "good pass ok",
  ]);
});

test("families run side by side", async () => {
  let release = (): void => undefined;
  const first: CheckFamily = {
    name: "first",
    run: () =>
      new Promise((resolve) => {
        release = () => resolve([pass("one", "well")]);
      }),
  };
  const second: CheckFamily = {
    name: "second",
    run: () => {
      release();
      return Promise.resolve([]);
    },
  };
  expect((await examined([first, second])).verdict).toBe("ok");
});

import { expect, test } from "vitest";
import { inspectState } from "../../../../src/agent/offline/offline-state.ts";
import { someDirectories } from "../../../support/local-agent.ts";

test("checks the settings in the given directories", async () => {
  await using dirs = await someDirectories();
  const { settings } = await inspectState(dirs.stateDir, undefined, dirs.runDir);
  expect(settings).toMatchObject({ isGood: true, overlay: { runDir: dirs.runDir } });
});

import { expect, test } from "vitest";
import { inspectState } from "../../../../src/agent/offline/offline-state.ts";
import { someDirectories } from "../../../support/local-agent.ts";

test("the settings that are looked at are those of the directories that were given", async () => {
  await using dirs = await someDirectories();
  const { settings } = await inspectState(dirs.stateDir, undefined, dirs.runDir);
  expect(settings).toMatchObject({ isGood: true, overlay: { runDir: dirs.runDir } });
});

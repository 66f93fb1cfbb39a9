import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { expect, test } from "vitest";
import { startStage, statusWhere } from "../../support/stage.ts";
import { startAgent } from "../../support/machine/programs.ts";
import { tempDir } from "../../support/temp-dir.ts";

const ADDS = `
  ALTER TABLE trigger_journal ADD COLUMN from_the_future TEXT;
  CREATE TABLE future (x TEXT) STRICT;
  PRAGMA user_version=99;
`;
const BREAKS = `${ADDS} UPDATE holdfast_schema SET compatible_from=99;`;

test.each([
  ["only added to", ADDS, []],
  ["changed beyond use", BREAKS, ["newer-file"]],
])("an older version is the same node with state that was %s", async (_what, change, codes) => {
  const dir = tempDir();
  const { agent, controller, uid } = await startStage(dir);
  const ping = () => controller.call("POST", `/node/${uid}/trigger/tg-nc?wait=1`, { host: "127.0.0.1", port: 1 });
  expect(await ping()).toMatchObject({ status: 200 });
  await agent.end();
  const path = join(agent.stateDir, "state.db");
  const newer = new DatabaseSync(path);
  newer.exec(change);
  newer.close();

  const again = await startAgent(join(dir, "node"));
  const status = await statusWhere(again, "it is online again", ({ session }) => session.state === "online");
  expect(status.node?.uid).toBe(uid);
  expect(status.faults.map(({ code }) => code)).toEqual(codes);
  expect(await ping()).toMatchObject({ status: 200 });
  expect((await again.status()).faults.every(({ mendedAt }) => mendedAt !== undefined)).toBe(true);
  await again.end();
  const kept = new DatabaseSync(path);
  // Both runs are in the one journal.
  expect(kept.prepare("SELECT count(*) AS n FROM trigger_journal").get()).toEqual({ n: 2 });
  kept.close();
});

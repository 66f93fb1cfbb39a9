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
const BREAKS = "UPDATE holdfast_schema SET compatible_from=99;";

test("an older version is the same node with state that was only added to, and with state that was changed beyond use", async () => {
  const dir = tempDir();
  const { agent, controller, uid } = await startStage(dir);
  const path = join(agent.stateDir, "state.db");
  const ping = () => controller.call("POST", `/node/${uid}/trigger/tg-nc?wait=1`, { host: "127.0.0.1", port: 1 });
  expect(await ping()).toMatchObject({ status: 200 });
  await agent.end();
  const change = (sql: string): void => {
    const newer = new DatabaseSync(path);
    newer.exec(sql);
    newer.close();
  };
  /** Starts it again, and returns the faults that it reports. */
  const runAgain = async (): Promise<readonly string[]> => {
    const again = await startAgent(join(dir, "node"));
    const status = await statusWhere(again, "it is online again", ({ session }) => session.state === "online");
    expect(status.node?.uid).toBe(uid);
    expect(await ping()).toMatchObject({ status: 200 });
    expect((await again.status()).faults.every(({ mendedAt }) => mendedAt !== undefined)).toBe(true);
    await again.end();
    return status.faults.map(({ code }) => code);
  };

  change(ADDS);
  expect(await runAgain()).toEqual([]);
  change(BREAKS);
  expect(await runAgain()).toEqual(["newer-file"]);
  const kept = new DatabaseSync(path);
  // All three runs are in the one journal.
  expect(kept.prepare("SELECT count(*) AS n FROM trigger_journal").get()).toEqual({ n: 3 });
  kept.close();
});

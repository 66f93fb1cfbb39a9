// Brings a PostgreSQL store up to date by steps of the test, and ends as by SIGKILL before one of their statements.
import type { Compilable } from "kysely";
import { z } from "zod";
import { openPostgresStore } from "../../../src/controller/store/postgres.ts";
import { parseStoreUrl } from "../../../src/controller/store/postgres-settings.ts";
import { systemClock } from "../../../src/host/clock.ts";
import { stepsUntil } from "./schema-steps.ts";

const [store, killAt] = z.tuple([z.string(), z.coerce.number()]).parse(process.argv.slice(2));
let statements = 0;
const counted = (statement: Compilable): Compilable => ({
  compile() {
    statements += 1;
    if (statements === killAt) process.kill(process.pid, "SIGKILL");
    return statement.compile();
  },
});
const steps = stepsUntil(3).map((step) => ({
  // The scripts of SQLite are made, too, and not run.
  statements: (...[db, engine]: Parameters<typeof step.statements>) =>
    step.statements(db, engine).map((statement) => (engine.name === "postgres" ? counted(statement) : statement)),
}));
const opened = await openPostgresStore({
  settings: { address: parseStoreUrl(store), limits: { connectMs: 60_000 } },
  holder: { name: "driver", address: "", startedAt: "" },
  clock: systemClock(),
  onTakenOver: () => undefined,
  steps,
});
await opened.close();
process.stdout.write(`${statements}`);

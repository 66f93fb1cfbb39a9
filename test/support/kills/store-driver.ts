// Opens, restores or migrates a controller's store once the tracer has attached.
import { readFileSync } from "node:fs";
import { z } from "zod";
import { migrate, restore } from "../../../src/controller/maintenance/restore.ts";
import { openSqliteStore } from "../../../src/controller/store/sqlite.ts";
import { parseStoreUrl } from "../../../src/controller/store/postgres-settings.ts";
import { systemClock } from "../../../src/host/clock.ts";
import { waitForTracer } from "../wait-for-tracer.ts";

const Place = z.object({ dataDir: z.string(), store: z.string().optional() }).transform(({ dataDir, store }) => ({
  dataDir,
  postgres: store === undefined ? undefined : { address: parseStoreUrl(store), limits: { connectMs: 60_000 } },
}));
const Work = z.discriminatedUnion("do", [
  z.object({ do: z.literal("open"), path: z.string() }),
  z.object({ do: z.literal("restore"), file: z.string(), to: Place }),
  z.object({ do: z.literal("migrate"), from: Place, to: Place }),
]);

const work = Work.parse(JSON.parse(readFileSync(process.argv[2] ?? "", "utf8")));
const deps = { clock: systemClock(), signal: new AbortController().signal };
await waitForTracer();
if (work.do === "open") await openSqliteStore(work.path).close();
else if (work.do === "restore") await restore(work.file, work.to, { isReplaced: true }, deps);
else await migrate(work.from, work.to, { isReplaced: true }, deps);

import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { parts, type Bench, type BenchOptions } from "./bench.ts";
import { beside } from "./data-store/beside.ts";
import { downloads, LARGE, MEDIUM, memory, SMALL } from "./data-store/downloads.ts";
import { startNginx, type Nginx } from "./data-store/nginx.ts";
import { objects } from "./data-store/objects.ts";
import { paths } from "./data-store/paths.ts";
import { skip, type Figure } from "./figures.ts";

const WEB_TOOLS = ["nginx", "curl"];
const OBJECT_TOOLS = ["rclone", "swift-proxy-server", "swift-object-server", "memcached"];

/** Measures the cost of moving files in and out of the data store, and checks that paths stay inside it. */
export const dataStore: Bench = {
  area: "data-store",
  about: "the data store: transfers against curl and rclone, the agent beside them, paths",
  async run(options) {
    const { dir, say } = options;
    const store = join(dir, "store");
    mkdirSync(store);
    for (const { name, bytes } of [LARGE, MEDIUM, SMALL]) makeFile(join(store, name), bytes);
    let started: Nginx | undefined;
    const web = async (measure: (nginx: Nginx) => Promise<Figure[]>): Promise<Figure[]> => {
      const missing = missingOf(WEB_TOOLS);
      if (missing !== undefined) return [skip("downloads", missing)];
      started ??= await startNginx(join(dir, "nginx"), store);
      return measure(started);
    };
    const figures = await parts(options, {
      downloads: () => web((nginx) => downloads(store, nginx, say)),
      memory: () => web((nginx) => memory(store, nginx, say)),
      beside: () => web((nginx) => beside(join(dir, "a"), nginx, MEDIUM.name, say)),
      objects: () => objectsOf(options, store),
      paths: () => paths(join(dir, "store"), say),
    });
    await started?.end();
    return figures;
  },
};

async function objectsOf({ dir, say }: BenchOptions, store: string): Promise<Figure[]> {
  const missing = missingOf(OBJECT_TOOLS);
  if (missing !== undefined) return [skip("objects", missing)];
  return objects({ dir: join(dir, "objects"), store, name: LARGE.name, say });
}

function missingOf(tools: readonly string[]): string | undefined {
  const missing = tools.filter((tool) => spawnSync("which", [tool]).status !== 0);
  return missing.length === 0 ? undefined : `not installed: ${missing.join(", ")}`;
}

/** Bytes that nothing can make smaller. */
function makeFile(path: string, bytes: number): void {
  execFileSync("sh", ["-c", `head -c ${bytes} /dev/urandom > "$1"`, "sh", path]);
}

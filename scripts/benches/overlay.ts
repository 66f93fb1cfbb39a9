import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { parts, type Bench, type BenchOptions } from "./bench.ts";
import { skip, type Figure } from "./figures.ts";
import type { Ports } from "./l4/contenders.ts";
import { startLoad, type Load } from "./l4/load-client.ts";
import { bulk, newFlows, roundTrips, type Carriers } from "./overlay/carrying.ts";
import { startBare, startHaproxies, startSplices, whyNoHaproxy } from "./overlay/contenders.ts";
import { recoveries } from "./overlay/failing.ts";
import { farAway, oneStalled } from "./overlay/hindered.ts";
import { idleEdges } from "./overlay/idle-gateway.ts";
import { startMesh } from "./overlay/mesh.ts";
import { startNebula, whyNoNebula } from "./overlay/nebula.ts";
import { makeSites, whyNoSites, type Sites } from "./overlay/sites.ts";
import { startHelper } from "./programs.ts";

/** First ports of each that carries; the sites are the bench's own, so that no port is taken. */
const FIRST = { overlay: 7000, bare: 7020, haproxy: 7040, splices: 7060, far: 7100, failing: 7200, idle: 7300 };

/** Flows from one site to another through a gateway: what they cost, how they stand faults, and what idle edges cost the gateway. */
export const overlay: Bench = {
  area: "overlay",
  about: "flows through a gateway, against bare Node with the same layers, nebula and HAProxy",
  async run(options) {
    const why = whyNoSites();
    if (why !== undefined) return [skip("everything", why)];
    const { dir } = options;
    const sites = await makeSites(dir);
    const backend = startHelper("l4/backend.ts", ["0.0.0.0"], { netOf: sites.b.netOf });
    const to = JSON.parse(await backend.ask("ports")) as Ports;
    const load = startLoad({ netOf: sites.a.netOf });
    const figures = await carrying(options, sites, to, load);
    const away = await parts(options, {
      "20 ms away": () => farAway(below(dir, "far"), load, sites, to, FIRST.far),
      faults: () => recoveries(below(dir, "failing"), load, sites, to, FIRST.failing),
    });
    await Promise.all([load.end(), backend.end()]);
    const idle = await parts(options, { "idle edges": () => idleEdges(dir, sites, FIRST.idle) });
    figures.push(...away, ...idle);
    await sites.end();
    return figures;
  },
};

const CARRYING = ["bulk", "new flows", "round trips", "one stalled"];

async function carrying(options: BenchOptions, sites: Sites, to: Ports, load: Load): Promise<Figure[]> {
  const { dir, only } = options;
  if (only.length > 0 && !CARRYING.some((part) => only.includes(part))) return [];
  const carriers: Carriers = {
    overlay: await startMesh(below(dir, "mesh"), sites, to, { first: FIRST.overlay }),
    bare: await startBare(sites, to, { first: FIRST.bare }),
    splices: await startSplices(sites, to, FIRST.splices),
    nebula: whyNoNebula() ?? (await startNebula(dir, sites, to)),
    haproxy: whyNoHaproxy() ?? startHaproxies(dir, sites, to, FIRST.haproxy),
  };
  const figures = await parts(options, {
    bulk: () => bulk(load, carriers),
    "new flows": () => newFlows(load, carriers),
    "round trips": () => roundTrips(load, carriers),
    "one stalled": () => oneStalled(load, carriers.overlay),
  });
  const { overlay, bare, splices, nebula, haproxy } = carriers;
  for (const one of [overlay, bare, splices, nebula, haproxy]) if (typeof one !== "string") await one.end();
  return figures;
}

function below(dir: string, name: string): string {
  const path = join(dir, name);
  mkdirSync(path);
  return path;
}

import { median, type Figure } from "../figures.ts";
import type { Load } from "../l4/load-client.ts";
import { compared, interleaved } from "../l4/rounds.ts";
import type { Ports } from "../l4/contenders.ts";
import { startHelper } from "../programs.ts";
import { serverOf } from "./carrying.ts";
import { startBare, type Carrier } from "./contenders.ts";
import { startMesh } from "./mesh.ts";
import type { Sites } from "./sites.ts";

const STREAMS = 200;
const STALLED_BYTES = 1e9;
const SHARED_BYTES = 398e6;
const ONE_WAY_MS = 10;
const FAR_BYTES = 100e6;
const MEGABIT = 1e6;

/** Measures the throughput of 199 flows beside one that is sent a lot and never read, against the same without it. */
export async function oneStalled(load: Load, overlay: Carrier): Promise<Figure[]> {
  const speed = async (): Promise<number> => {
    const from = performance.now();
    await load.ask({ do: "pull", ...serverOf(overlay, "source"), flows: STREAMS - 1, bytes: SHARED_BYTES });
    return (SHARED_BYTES * 8) / 1e9 / ((performance.now() - from) / 1000);
  };
  const values = await interleaved(
    {
      stalled: async () => {
        await load.ask({ do: "stall", ...serverOf(overlay, "source"), bytes: STALLED_BYTES });
        const value = await speed();
        const { cut } = await load.ask({ do: "release" });
        if (cut > 0) throw new Error("the stalled flow was cut");
        return value;
      },
      free: speed,
    },
    { rounds: 7, warmUp: 1 },
  );
  const peer = { name: "none stalled", values: values.free };
  return [compared("199 flows beside a stalled one", "Gb/s", values.stalled, peer, { of: "ratio", least: 0.95 })];
}

/** One flow with 20 ms between the edges: a hop between site A and the gateway keeps each byte for 10 ms each way. */
export async function farAway(dir: string, load: Load, sites: Sites, to: Ports, first: number): Promise<Figure[]> {
  const { a, gateway } = sites;
  const [forMesh, forBare] = [first + 17, first + 19];
  const pairs = [
    [forMesh, first + 8],
    [forBare, first + 19],
  ].map(([own, port]) => `127.0.0.1:${own}=${gateway.address}:${port}`);
  const hop = startHelper("overlay/plain-hop.ts", [String(ONE_WAY_MS), ...pairs], { netOf: a.netOf });
  await hop.ask("ready");
  const overlay = await startMesh(dir, sites, to, { first, by: `127.0.0.1:${forMesh}` });
  const bare = await startBare(sites, to, { first: first + 10, by: `127.0.0.1:${forBare}` });
  const figures: Figure[] = [];
  for (const [way, what, server] of [
    ["pull", "to the client", "source"],
    ["push", "from the client", "sink"],
  ] as const) {
    const speed = (carrier: Carrier) => async (): Promise<number> => {
      const from = performance.now();
      await load.ask({ do: way, ...serverOf(carrier, server), flows: 1, bytes: FAR_BYTES });
      return (FAR_BYTES * 8) / MEGABIT / ((performance.now() - from) / 1000);
    };
    const values = await interleaved({ overlay: speed(overlay), bare: speed(bare) }, { rounds: 3, warmUp: 1 });
    const peer = { name: bare.name, values: values.bare };
    figures.push(compared(`one flow ${what}, 20 ms away`, "Mb/s", values.overlay, peer, { of: "value", least: 500 }));
  }
  const trip = await load.ask({ do: "roundTrips", ...serverOf(overlay, "echo"), count: 50 });
  figures.push({ what: "64 bytes there and back, 20 ms away", value: median([trip.p50 / 1000]), unit: "ms" });
  await Promise.all([overlay.end(), bare.end(), hop.end("SIGKILL")]);
  return figures;
}

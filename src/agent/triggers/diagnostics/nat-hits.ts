import type { TrackedNat } from "../../../protocol/sections/network/nat-tracker.ts";
import { NatHits } from "../../../protocol/triggers/bodies.ts";
import type { NatHits as Hits, NatWatch } from "./nat-watch.ts";
import type { OneShotTrigger } from "../execution/trigger.ts";

/** A translation with its hits, with the platform's field names; times in Unix seconds, null without hits. */
export interface NatRow {
  readonly trackerID: string;
  /** Source or destination translation. */
  readonly type: "inside" | "outside";
  /** Name of the VRF; empty for the default context. */
  readonly networkName: string;
  readonly interfaceName: string;
  readonly insideCIDR: string;
  readonly outsideCIDR: string;
  readonly networkGroup: string;
  readonly hits: number;
  readonly initialHit: number | null;
  readonly latestHit: number | null;
}

const ANY = "0.0.0.0/0";
/** Maximum size of a reply with its envelope. */
const MAX_BYTES = 1_000_000;
const FILTERS = ["trackerID", "networkName", "interfaceName", "insideCIDR", "outsideCIDR", "networkGroup"] as const;

/** Lists the hits of each translation, in flows instead of packets, since the agent started; or resets them. */
export function natHits(nats: () => readonly TrackedNat[], watch: NatWatch): OneShotTrigger<NatHits> {
  return {
    event: "nat-hits",
    kind: "one-shot",
    request: NatHits,
    deadlineMs: 15_000,
    needsDataPlane: true,
    readOnly: true,
    agents: false,
    async handle(request, { signal }) {
      const hits = await watch.hits(signal);
      const rows = nats().map((one) => natRow(one, hits.get(one.tracker)));
      const chosen = request.action === "RESET_ALL" ? rows : rows.filter((row) => isChosen(row, request));
      if (request.action === "GET") return natsAnswer(chosen);
      return { reset: watch.reset(new Set(chosen.map(({ trackerID }) => trackerID))) };
    },
  };
}

/** Returns as many rows as fit one message. Pure. */
export function natsAnswer(rows: readonly NatRow[], maxBytes = MAX_BYTES): object {
  let left = maxBytes;
  const fitting = rows.filter((row) => {
    left -= JSON.stringify(row).length + 1;
    return left > 0;
  });
  return { nats: fitting, total: rows.length, ...(fitting.length < rows.length ? { truncated: true } : {}) };
}

/** Converts a translation to the platform's form. Pure. */
export function natRow({ tracker, vrf, nat }: TrackedNat, hits: Hits | undefined): NatRow {
  const isOutside = nat.toDest !== undefined;
  const [inside, outside] = isOutside ? [nat.toDest, nat.dest] : [nat.source, nat.toSource ?? ""];
  return {
    trackerID: tracker,
    type: isOutside ? "outside" : "inside",
    networkName: vrf ?? "",
    interfaceName: "",
    insideCIDR: inside ?? ANY,
    outsideCIDR: outside ?? ANY,
    networkGroup: "",
    hits: hits?.hits ?? 0,
    initialHit: hits?.initialHit ?? null,
    latestHit: hits?.latestHit ?? null,
  };
}

function isChosen(row: NatRow, request: NatHits): boolean {
  return FILTERS.every((name) => request[name] === "" || request[name] === row[name]);
}

import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { pino } from "pino";
import { ownProcess } from "../../src/host/process/process-tree.ts";
import { Applying } from "../../src/agent/applying/applying.ts";
import { reconciler, type Reconciler } from "../../src/agent/reconcile/section.ts";
import { agentSignals } from "../../src/agent/wiring/signals.ts";
import type { Trust } from "../../src/agent/identity/identity.ts";
import { DesiredDocuments } from "../../src/agent/shadow/desired.ts";
import {
  initialReporter,
  nextReport,
  reportAcknowledged,
  type ReporterState,
} from "../../src/agent/shadow/reporter.ts";
import { systemClock } from "../../src/host/clock.ts";
import { hostFiles } from "../../src/host/files/files.ts";
import { keySetOf } from "../../src/protocol/channel/keys-chain.ts";
import { normaliseConnectors, type Connector } from "../../src/protocol/sections/connectors/connectors.ts";
import type { JsonObject } from "../../src/protocol/values/values.ts";
import {
  clusterDocument,
  ISS,
  nodeDocument,
  signDocument,
  signingKey,
  UID,
  type SigningKey,
} from "../../test/support/control-plane/signing.ts";
import { provenAtOnce } from "../../test/support/reconcile/commit.ts";
import type { Bench } from "./bench.ts";
import { median } from "./figures.ts";

const ROUNDS = 9;
const ITEMS = 1000;
const MANY = 10 * ITEMS;
/** Items of each hundred that come from the cluster, so that there is something to merge. */
const SHARED = 10;
const CLUSTER = "pair.example.net";

/**
 * From a signed document to the answer for it: verify, store, merge, parse, observe, plan, apply to a machine in memory, observe and plan
 * again, judge, and what the shadow has to send.
 */
export const reconcile: Bench = {
  area: "reconcile",
  about: "from a signed document with 1,000 connectors to the answer for it, over a machine in memory",
  async run({ dir, say }) {
    const key = await signingKey();
    const rounds = { first: [] as number[], unchanged: [] as number[], same: [] as number[], one: [] as number[] };
    let steps = 0;
    for (let round = 0; round <= ROUNDS; round += 1) {
      const node = await Rig.open(join(dir, `round-${round}`), key);
      const first = await node.take(ITEMS);
      const unchanged = await node.look();
      const same = await node.take(ITEMS);
      const one = await node.take(ITEMS, 1);
      steps = one.steps;
      await node.close();
      if (first.steps !== ITEMS || unchanged.steps + same.steps > 0) throw new Error("the pass did something else");
      if (round === 0) continue;
      rounds.first.push(first.ms);
      rounds.unchanged.push(unchanged.ms);
      rounds.same.push(same.ms);
      rounds.one.push(one.ms);
    }
    say(`${ROUNDS} rounds of ${ITEMS} items`);
    const large = await Rig.open(join(dir, "large"), key);
    const largeFirst = await large.take(MANY);
    const largeUnchanged: number[] = [];
    for (let round = 0; round < ROUNDS; round += 1) largeUnchanged.push((await large.look()).ms);
    await large.close();
    const [first, unchanged] = [median(rounds.first), median(rounds.unchanged)];
    const tenTimes = (value: number) => ({ name: `ten times ${ITEMS} items`, value: 10 * value });
    return [
      { what: "1,000 items, first apply", value: first, unit: "ms", bar: { of: "value", most: 3000 } },
      { what: "pass without a change", value: unchanged, unit: "ms", bar: { of: "value", most: 50 } },
      { what: "the same in a newer version", value: median(rounds.same), unit: "ms" },
      { what: "one item changed", value: median(rounds.one), unit: "ms" },
      { what: "steps for one changed item", value: steps, unit: "", bar: { of: "value", most: 1 } },
      {
        what: "10,000 items, first apply",
        value: largeFirst.ms,
        unit: "ms",
        peer: tenTimes(first),
        bar: { of: "ratio", most: 2 },
      },
      {
        what: "10,000 items, pass without a change",
        value: median(largeUnchanged),
        unit: "ms",
        peer: tenTimes(unchanged),
        bar: { of: "ratio", most: 2 },
      },
    ];
  },
};

interface Taken {
  readonly ms: number;
  readonly steps: number;
}

/** A node of this bench's own, from its documents to its shadow. */
class Rig {
  readonly #documents: DesiredDocuments;
  readonly #applying: Applying;
  readonly #key: SigningKey;
  readonly #trust: Trust;
  readonly #count: () => number;
  #reporter: ReporterState = initialReporter(undefined);
  #version = 0;
  #now = 0;

  private constructor(
    documents: DesiredDocuments,
    applying: Applying,
    key: SigningKey,
    trust: Trust,
    count: () => number,
  ) {
    this.#documents = documents;
    this.#applying = applying;
    this.#key = key;
    this.#trust = trust;
    this.#count = count;
  }

  static async open(stateDir: string, key: SigningKey): Promise<Rig> {
    mkdirSync(join(stateDir, "desired"), { recursive: true });
    const files = hostFiles();
    const documents = await DesiredDocuments.load(files, stateDir);
    const { section, count } = tableSection();
    const applying = new Applying({
      clock: systemClock(),
      random: Math.random,
      log: pino({ level: "info", enabled: false }),
      files,
      settings: { stateDir },
      documents,
      commit: {
        bootId: "0197f1a2-0000-4000-8000-00000000b007",
        owner: ownProcess(),
        prover: provenAtOnce,
        watch: () => Promise.resolve({ end: () => Promise.resolve() }),
        onProven: () => undefined,
      },
      sections: [section],
      events: { raise: () => undefined, clear: () => undefined, notice: () => undefined },
      signals: agentSignals(),
      onFault: (code, message) => {
        throw new Error(`${code}: ${message}`);
      },
      onDamage: () => undefined,
    });
    const trust = { iss: ISS, uid: UID, keys: await keySetOf([key.publicKey]) };
    return new Rig(documents, applying, key, trust, count);
  }

  /** Takes a new version with so many items, of which some differ from the last version's. */
  async take(items: number, changed = 0): Promise<Taken> {
    this.#version += 1;
    const of = (isShared: boolean) => ({ connectors: connectors(items, changed, isShared) });
    const node = nodeDocument({ cluster: CLUSTER, config: of(false) });
    const jws = await signDocument(this.#key, "node", this.#version, node);
    const shared = await signDocument(this.#key, "cluster", 1, clusterDocument(CLUSTER, { config: of(true) }));
    return this.#timed(async () => {
      await this.#documents.accept("node", jws, this.#trust, this.#version);
      if (this.#version === 1) await this.#documents.accept("cluster", shared, this.#trust, this.#version);
      this.#applying.apply();
    });
  }

  /** Looks at the machine again, as the agent does once a minute. */
  look(): Promise<Taken> {
    return this.#timed(() => Promise.resolve(this.#applying.engine.reevaluate("bench")));
  }

  close(): Promise<void> {
    return this.#applying.close();
  }

  async #timed(work: () => Promise<void>): Promise<Taken> {
    const [from, before] = [performance.now(), this.#count()];
    await work();
    await this.#applying.engine.idle();
    if (this.#applying.verdicts()?.node?.outcome !== "converged") throw new Error("not converged");
    this.#now += 10_000;
    const { state, report } = nextReport(this.#reporter, this.#applying.facts(), this.#now);
    this.#reporter = report === undefined ? state : reportAcknowledged(state, report.version);
    return { ms: performance.now() - from, steps: this.#count() - before };
  }
}

/** A section over a table in memory, and how many steps it has taken. */
function tableSection(): { readonly section: Reconciler; readonly count: () => number } {
  const table = new Map<string, string>();
  let steps = 0;
  const section = reconciler<readonly Connector[], ReadonlyMap<string, string>, TableStep>({
    name: "connectors",
    needsDataPlane: true,
    parse(raw) {
      const { items, rejected } = normaliseConnectors(raw, { nodeType: "Node" });
      return { desired: items, rejected };
    },
    observe: () => Promise.resolve(new Map(table)),
    plan(desired, actual) {
      const wanted = new Map(desired.map((item) => [item.id, JSON.stringify(item)]));
      const gone = [...actual.keys()].filter((id) => !wanted.has(id));
      const changed = [...wanted].filter(([id, value]) => actual.get(id) !== value);
      return [
        ...gone.map((subject) => ({ kind: "close", subject, guarded: false, removes: true, value: "" }) as const),
        ...changed.map(([subject, value]) => ({ kind: "listen", subject, guarded: false, value }) as const),
      ];
    },
    undo: () => undefined,
    apply({ kind, subject, value }) {
      steps += 1;
      if (kind === "listen") table.set(subject, value);
      else table.delete(subject);
      return Promise.resolve();
    },
    report: (actual) => ({ listeners: actual.size }),
  });
  return { section, count: () => steps };
}

interface TableStep {
  readonly kind: "listen" | "close";
  readonly subject: string;
  readonly guarded: boolean;
  readonly removes?: boolean;
  readonly value: string;
}

function connectors(count: number, changed: number, isShared: boolean): JsonObject {
  const items: Record<string, unknown> = {};
  for (let index = 0; index < count; index += 1) {
    if (index % 100 < SHARED !== isShared) continue;
    const id = `0197f1a2-0000-7000-8000-${String(index).padStart(12, "0")}`;
    const isChanged = index >= count - changed;
    items[id] = {
      index,
      node: "local",
      service: `10.${index >> 8}.${index & 255}.1:80`,
      protocol: "tcp",
      port: 10_000 + index,
      localIp: "127.0.0.1",
      sourceBlock: "10.0.0.0/8, 192.168.0.0/16",
      maxConnections: isChanged ? 7 : 100,
      description: `connector ${index} to a service that somebody wrote a sentence about`,
    };
  }
  return { enabled: true, version: 2, items };
}

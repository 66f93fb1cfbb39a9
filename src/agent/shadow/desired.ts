import { z } from "zod";
import { InputError } from "../../errors.ts";
import type { Files } from "../../host/files.ts";
import { stateFile, valueOf, type Loaded, type StateFile } from "../../host/state-file.ts";
import { damageOf, type Damage } from "../../host/damage.ts";
import { DocumentName, type DocumentClaims } from "../../protocol/claims.ts";
import {
  ClusterDocument,
  DomainDocument,
  KNOWN_FEATURES,
  NodeDocument,
  splitByFeatures,
  unknownSections,
  type SplitItems,
} from "../../protocol/documents.ts";
import { describeIssues } from "../../protocol/envelope.ts";
import type { FloorName, FloorReset } from "../../protocol/local-api.ts";
import { peekClaims, verifyJws, type KeySet } from "../../protocol/jws.ts";
import { Jws, UnixMilliseconds, Version } from "../../protocol/values.ts";

const bodies = { node: NodeDocument, cluster: ClusterDocument, domain: DomainDocument } as const;

/** The documents in force. Absent means never received, or, for `cluster`, not a member. */
export interface Desired {
  readonly node?: Held<NodeDocument>;
  readonly cluster?: Held<ClusterDocument>;
  readonly domain?: Held<DomainDocument>;
}

export interface Held<Body> {
  readonly version: number;
  readonly sub: string;
  readonly receivedAt: number;
  readonly body: Body;
  /** What of it this version does not know and passes over, a line each. */
  readonly passedOver: readonly string[];
}

const Stored = z.object({ jws: Jws, receivedAt: UnixMilliseconds });
type Stored = z.infer<typeof Stored>;
const MAX_LINES = 20;
const MAX_LINE = 256;
const Floors = z.record(z.string().max(300), Version);

export interface Trust {
  readonly iss: string;
  readonly uid: string;
  readonly keys: KeySet;
}

/** A document that is genuinely ours and cannot be used; `version` is the one it was signed with. */
export class RefusedDocument extends InputError {
  readonly version: number;

  constructor(version: number, ...about: ConstructorParameters<typeof InputError>) {
    super(...about);
    this.version = version;
  }
}

/** The verified documents below `desired/`, each with its previous copy, and the floors no version may fall below. */
export class DesiredDocuments {
  readonly #files: Readonly<Record<DocumentName, StateFile<Stored>>>;
  readonly #refused: Readonly<Record<DocumentName, StateFile<Stored>>>;
  readonly #floorFile: StateFile<z.infer<typeof Floors>>;
  #floors: Record<string, number> = {};
  #held: Desired = {};
  readonly damage: Damage[] = [];

  private constructor(files: Files, stateDir: string) {
    const at = <T>(name: string, schema: z.ZodType<T>, keepsPrevious: boolean): StateFile<T> =>
      stateFile(files, { path: `${stateDir}/desired/${name}.json`, schema, keepsPrevious });
    const each = (suffix: string, keepsPrevious: boolean): Record<DocumentName, StateFile<Stored>> => ({
      node: at(`node${suffix}`, Stored, keepsPrevious),
      cluster: at(`cluster${suffix}`, Stored, keepsPrevious),
      domain: at(`domain${suffix}`, Stored, keepsPrevious),
    });
    this.#files = each("", true);
    this.#refused = each(".refused", false);
    this.#floorFile = at("floors", Floors, true);
  }

  /** Reads what was last good. It was verified when it came, so no key and no network is needed. */
  static async load(files: Files, stateDir: string): Promise<DesiredDocuments> {
    const documents = new DesiredDocuments(files, stateDir);
    const floors = await documents.#floorFile.load();
    documents.#floors = { ...valueOf(floors) };
    documents.#note("floors", floors);
    for (const name of DocumentName.options) {
      const loaded = await documents.#files[name].load();
      documents.#note(name, loaded);
      const stored = valueOf(loaded);
      const isUsable = stored !== undefined && documents.#restore(name, stored);
      // Where the disk refuses, the previous copy serves as well at the next start.
      if (isUsable && loaded.is === "recovered") await documents.#files[name].save(loaded.value).catch(() => undefined);
    }
    if (floors.is !== "good") {
      documents.#raiseFloors();
      if (floors.is !== "absent") await documents.#floorFile.save(documents.#floors).catch(() => undefined);
    }
    return documents;
  }

  get current(): Desired {
    return this.#held;
  }

  /** The version in force; zero also for the document of a cluster or domain that the node is no longer in, which has its own count. */
  version(name: DocumentName): number {
    const held = this.#held[name];
    const node = this.#held.node?.body;
    const isLeft =
      (name === "cluster" && held?.sub !== node?.cluster) ||
      (name === "domain" && node !== undefined && held?.sub !== node.domain);
    return held === undefined || isLeft ? 0 : held.version;
  }

  /**
   * Verifies a document, stores it and puts it in force. A repeated call with the version in force changes nothing.
   * @throws {RefusedDocument} `below-floor`, `invalid-document` or `not-supported`; {InputError} the codes of `verifyJws`. What was in
   *   force stays.
   */
  async accept(name: DocumentName, jws: string, trust: Trust, now: number): Promise<DocumentClaims> {
    const claims = await verifyJws("holdfast-document+jwt", jws, trust.keys);
    const wrong = [
      claims.iss === trust.iss ? "" : "iss",
      claims.aud === trust.uid ? "" : "aud",
      claims.name === name ? "" : "name",
      this.#isOurs(claims) ? "" : "sub",
    ].filter((field) => field !== "");
    if (wrong.length > 0) throw new InputError("bad-signature", `${name} document: wrong ${wrong.join(", ")}`);
    const floor = this.#floors[floorKey(claims)] ?? 0;
    if (claims.version < floor) {
      const message = `${name} document: version ${claims.version} is below the floor ${floor}`;
      throw new RefusedDocument(claims.version, "below-floor", message);
    }
    const stored = { jws, receivedAt: now };
    try {
      this.#check(claims);
    } catch (error) {
      await this.#refused[name].save(stored);
      throw error;
    }
    if (claims.version === this.#held[name]?.version && claims.sub === this.#held[name].sub) return claims;
    // The floor comes first: cut short between the two, the same version is still welcome and no older one is.
    if (claims.version > floor) {
      this.#floors[floorKey(claims)] = claims.version;
      await this.#floorFile.save(this.#floors);
    }
    await this.#files[name].save(stored);
    this.#hold(stored);
    return claims;
  }

  /** Forgets the cluster's document when the node is no longer a member. */
  async leaveCluster(): Promise<void> {
    if (this.#held.cluster === undefined) return;
    const { cluster: _left, ...rest } = this.#held;
    this.#held = rest;
    await this.#files.cluster.remove();
  }

  /** Lets any version of one document in again: an operator's decision, after a control plane lost its own count. */
  async resetFloor(name: FloorName): Promise<FloorReset> {
    if (name === "keys") {
      throw new InputError("not-supported", "the keys document follows its own chain of signatures and has no floor");
    }
    const mine = (key: string): boolean => key.startsWith(`${name}/`);
    const from = Math.max(0, ...Object.entries(this.#floors).flatMap(([key, floor]) => (mine(key) ? [floor] : [])));
    this.#floors = Object.fromEntries(Object.entries(this.#floors).filter(([key]) => !mine(key)));
    await this.#floorFile.save(this.#floors);
    return { name, from, to: 0 };
  }

  #isOurs(claims: DocumentClaims): boolean {
    switch (claims.name) {
      case "node":
        return claims.sub === claims.aud;
      case "cluster":
        return claims.sub === this.#held.node?.body.cluster;
      case "domain":
        return this.#held.node === undefined || claims.sub === this.#held.node.body.domain;
    }
  }

  #check(claims: DocumentClaims): void {
    const parsed = bodies[claims.name].safeParse(claims.body);
    if (!parsed.success) {
      const issues = bounded(describeIssues(parsed.error, claims.name));
      throw new RefusedDocument(claims.version, "invalid-document", issues.join("; "), { details: { issues } });
    }
    const missing = (parsed.data.requires ?? []).filter((feature) => !KNOWN_FEATURES.has(feature));
    if (missing.length > 0) {
      const message = `${claims.name} document requires ${missing.join(", ")}`;
      throw new RefusedDocument(claims.version, "not-supported", message, { details: { missing } });
    }
  }

  #hold(stored: Stored): void {
    const claims = peekClaims("holdfast-document+jwt", stored.jws);
    const passedOver = bounded(
      unknownSections(claims.body).map((name) => `config.${name}: no section of this version`),
    );
    const common = { version: claims.version, sub: claims.sub, receivedAt: stored.receivedAt, passedOver };
    switch (claims.name) {
      case "node":
        this.#held = { ...this.#held, node: { ...common, body: NodeDocument.parse(claims.body) } };
        return;
      case "cluster":
        this.#held = { ...this.#held, cluster: { ...common, body: ClusterDocument.parse(claims.body) } };
        return;
      case "domain": {
        const { peers, grants, ...body } = DomainDocument.parse(claims.body);
        const [split, splitGrants] = [splitByFeatures(peers), splitByFeatures(grants)];
        this.#held = {
          ...this.#held,
          domain: {
            ...common,
            body: { ...body, peers: split.usable, grants: splitGrants.usable },
            passedOver: bounded([...notSupported("peers", split), ...notSupported("grants", splitGrants)]),
          },
        };
      }
    }
  }

  /** Puts a stored document in force; one that this version's schema refuses is damage, and no reason not to start. */
  #restore(name: DocumentName, stored: Stored): boolean {
    try {
      this.#hold(stored);
      return true;
    } catch {
      this.damage.push({ file: `desired/${name}.json`, isRecovered: false });
      return false;
    }
  }

  /** Floors that were lost, or are those before the last, are no lower than what is in force. */
  #raiseFloors(): void {
    for (const name of DocumentName.options) {
      const held = this.#held[name];
      if (held === undefined) continue;
      const key = floorKey({ name, sub: held.sub });
      this.#floors[key] = Math.max(this.#floors[key] ?? 0, held.version);
    }
  }

  #note(name: string, loaded: Loaded<unknown>): void {
    const damage = damageOf(`desired/${name}.json`, loaded);
    if (damage !== undefined) this.damage.push(damage);
  }
}

/** As much of it as a person reads. */
function bounded(lines: readonly string[]): readonly string[] {
  const cut = lines.map((line) => line.slice(0, MAX_LINE));
  if (cut.length <= MAX_LINES) return cut;
  return [...cut.slice(0, MAX_LINES - 1), `and ${cut.length - MAX_LINES + 1} more`];
}

function notSupported(list: string, { refused }: SplitItems): readonly string[] {
  return refused.map(({ index, missing }) => `${list}.${index}: not supported, it requires ${missing.join(", ")}`);
}

function floorKey(claims: Pick<DocumentClaims, "name" | "sub">): string {
  return `${claims.name}/${claims.sub}`;
}

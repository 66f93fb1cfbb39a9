import { z } from "zod";
import { InputError } from "../../errors.ts";
import type { Files } from "../../host/files/files.ts";
import { heldStateFile, stateFile, valueOf, type HeldStateFile, type Loaded } from "../../host/files/state-file.ts";
import { damageOf, type Damage } from "../../host/files/damage.ts";
import { DocumentName, type DocumentClaims } from "../../protocol/documents/claims.ts";
import { NodeDocument } from "../../protocol/documents/documents.ts";
import type { RollbackCause } from "../../protocol/values/commit.ts";
import type { FloorName } from "../../protocol/local/api.ts";
import type { FloorReset } from "../../protocol/local/answers.ts";
import { verifyJws } from "../../protocol/channel/jws.ts";
import { UnixMilliseconds, Version } from "../../protocol/values/values.ts";
import type { Trust } from "../identity/identity.ts";
import { checkDocument, claimsOf, RefusedDocument, Stored, withDocument, type Desired } from "./held-document.ts";
import { serialQueue } from "../../lib/async/serial-queue.ts";
import { defined } from "../../lib/defined.ts";

export { RefusedDocument, type Desired, type Held } from "./held-document.ts";

const Floors = z.record(z.string().max(300), Version);
const Deleted = z.object({ at: UnixMilliseconds });

/** A rollback from one version to another, and the documents after it. */
export interface RolledBack {
  readonly desired: Desired;
  readonly from: number;
  readonly to: number;
}

/**
 * The verified documents below `desired/`, each with its previous copy, and the floors below which no version is accepted. A version that
 * the disk refuses applies all the same, until this program ends.
 */
export class DesiredDocuments {
  readonly #files: Readonly<Record<DocumentName, HeldStateFile<Stored>>>;
  readonly #refused: Readonly<Record<DocumentName, HeldStateFile<Stored>>>;
  readonly #floorFile: HeldStateFile<z.infer<typeof Floors>>;
  #floors: Record<string, number> = {};
  #held: Desired = {};
  readonly #deletedFile: HeldStateFile<z.infer<typeof Deleted>>;
  /** When the control plane deleted this node, in Unix milliseconds; undefined while it has the node. */
  #deletedAt: number | undefined;
  #current: { readonly of: Desired; readonly shown: Desired } | undefined;
  readonly damage: Damage[] = [];
  /** Reports whether a version is not proven yet: it does not replace the version to roll back to. */
  isUnproven: (name: DocumentName, version: number) => boolean = () => false;
  /** Runs one change at a time, since each depends on the result of the previous one. */
  readonly #serially = serialQueue();

  private constructor(files: Files, stateDir: string) {
    const at = <T>(name: string, schema: z.ZodType<T>, keepsPrevious: boolean): HeldStateFile<T> =>
      heldStateFile(stateFile(files, { path: `${stateDir}/desired/${name}.json`, schema, keepsPrevious }));
    const each = (suffix: string, keepsPrevious: boolean): Record<DocumentName, HeldStateFile<Stored>> => ({
      node: at(`node${suffix}`, Stored, keepsPrevious),
      cluster: at(`cluster${suffix}`, Stored, keepsPrevious),
      domain: at(`domain${suffix}`, Stored, keepsPrevious),
    });
    this.#files = each("", true);
    this.#refused = each(".refused", false);
    this.#floorFile = at("floors", Floors, true);
    this.#deletedFile = at("deleted", Deleted, false);
  }

  /** Reads the documents from disk. They were verified when they arrived, so neither keys nor network are needed. */
  static async load(files: Files, stateDir: string): Promise<DesiredDocuments> {
    const documents = new DesiredDocuments(files, stateDir);
    const floors = await documents.#floorFile.load();
    documents.#floors = { ...valueOf(floors) };
    documents.#note("floors", floors);
    const deleted = await documents.#deletedFile.load();
    documents.#note("deleted", deleted);
    documents.#deletedAt = valueOf(deleted)?.at;
    for (const name of DocumentName.options) {
      const loaded = await documents.#files[name].load();
      documents.#note(name, loaded);
      const stored = valueOf(loaded);
      const isUsable = stored !== undefined && documents.#restore(name, stored);
      // If the disk refuses, the previous copy serves as well at the next start.
      if (isUsable && loaded.is === "recovered") await documents.#files[name].save(loaded.value).catch(() => undefined);
    }
    if (floors.is !== "good") {
      documents.#raiseFloors();
      if (floors.is !== "absent") await documents.#floorFile.save(documents.#floors).catch(() => undefined);
    }
    return documents;
  }

  /**
   * The applied documents. A deleted node is INACTIVE, regardless of its document, and so is one whose cluster document is still that
   * of a restricted node, because the rest of the cluster's sections has not arrived yet.
   */
  get current(): Desired {
    if (this.#current?.of !== this.#held) this.#current = { of: this.#held, shown: this.#asHeld(this.#held) };
    return this.#current.shown;
  }

  get deletedAt(): number | undefined {
    return this.#deletedAt;
  }

  /** Saves that the control plane deleted this node, or has it again. It applies at once. */
  setDeleted(at: number | undefined): Promise<void> {
    this.#deletedAt = at === undefined ? undefined : (this.#deletedAt ?? at);
    this.#current = undefined;
    return this.#serially(() =>
      this.#deletedAt === undefined ? this.#deletedFile.remove() : this.#deletedFile.save({ at: this.#deletedAt }),
    );
  }

  #asHeld(desired: Desired): Desired {
    const { node, cluster } = desired;
    if (node === undefined) return desired;
    const isDeleted = this.#deletedAt !== undefined;
    const held = cluster?.sub === node.body.cluster ? cluster?.body.restricted : undefined;
    if (!isDeleted && held === undefined) return desired;
    const restricted = node.body.restricted ?? held;
    const body = { ...node.body, state: "INACTIVE" as const, ...defined({ restricted }) };
    return { ...desired, node: { ...node, body } };
  }

  /** The documents whose newest version is in memory only, because the disk refused it. */
  get unsaved(): readonly DocumentName[] {
    return DocumentName.options.filter((name) => this.#files[name].isUnsaved);
  }

  /** Writes what is in memory only, once the disk accepts writes again. */
  keep(): Promise<void> {
    return this.#serially(async () => {
      const files = [
        this.#deletedFile,
        this.#floorFile,
        ...Object.values(this.#refused),
        ...Object.values(this.#files),
      ];
      for (const file of files) await file.keep();
    });
  }

  /** Returns the applied version; zero also for the document of a cluster or domain that the node has left, whose versions are counted apart. */
  version(name: DocumentName): number {
    const held = this.#held[name];
    const node = this.#held.node?.body;
    const isLeft =
      (name === "cluster" && held?.sub !== node?.cluster) ||
      (name === "domain" && node !== undefined && held?.sub !== node.domain);
    return held === undefined || isLeft ? 0 : held.version;
  }

  /** Returns the newest accepted version, applied or rolled back; zero as for `version`. */
  newest(name: DocumentName): number {
    const version = this.version(name);
    return version === 0 ? 0 : Math.max(version, this.#held[name]?.refused?.version ?? 0);
  }

  /**
   * Returns what would be applied after a rollback, and its versions. Changes nothing.
   * @throws {InputError} `not-found` without a document or a previous version, `inactive` if the rollback would activate the node.
   */
  async rolledBack(name: DocumentName): Promise<RolledBack> {
    const { from, to, stored } = await this.#previous(name);
    return { desired: this.#asHeld(withDocument(this.#held, stored)), from, to };
  }

  /**
   * Applies the previous version of a document, in one durable step, until a version arrives that is newer than the refused one.
   * @param version the version to refuse: a newer one may have just arrived.
   * @throws {InputError} as `rolledBack`, and `superseded`. Nothing has changed then.
   */
  rollBack(name: DocumentName, now: number, why?: RollbackCause, version?: number): Promise<RolledBack> {
    return this.#serially(() => this.#rollBack(name, now, why, version));
  }

  async #rollBack(name: DocumentName, now: number, why?: RollbackCause, version?: number): Promise<RolledBack> {
    const { from, to, stored, newest } = await this.#previous(name);
    if (version !== undefined && from !== version) {
      throw new InputError("superseded", `${name}: version ${from} is applied, not ${version}`);
    }
    // Kept for diagnosis.
    await this.#refused[name].save(newest);
    const kept = { ...stored, refused: { version: from, at: now, ...defined({ why }) } };
    const desired = withDocument(this.#held, kept);
    await this.#files[name].replace(kept);
    this.#held = desired;
    return { desired: this.current, from, to };
  }

  /**
   * Verifies a document, stores it and makes it the applied one. A repeated call with the same version changes nothing.
   * @throws {RefusedDocument} `below-floor`, `invalid-document` or `not-supported`; {InputError} the codes of `verifyJws`. Nothing has
   *   changed then.
   */
  accept(name: DocumentName, jws: string, trust: Trust, now: number): Promise<DocumentClaims> {
    return this.#serially(() => this.#accept(name, jws, trust, now));
  }

  async #accept(name: DocumentName, jws: string, trust: Trust, now: number): Promise<DocumentClaims> {
    const claims = await verifyJws("holdfast-document+jwt", jws, trust.keys);
    const wrong = [
      claims.iss === trust.iss ? "" : "iss",
      claims.aud === trust.uid ? "" : "aud",
      claims.name === name ? "" : "name",
      this.#isOurs(claims) ? "" : "sub",
    ].filter((field) => field !== "");
    if (wrong.join() === "sub" && name === "cluster" && this.#held.node?.refused !== undefined) {
      const message = "the node document is rolled back to another membership than this cluster's";
      throw new InputError("rolled-back", message);
    }
    if (wrong.length > 0) throw new InputError("bad-signature", `${name} document: wrong ${wrong.join(", ")}`);
    const floor = this.#floors[floorKey(claims)] ?? 0;
    if (claims.version < floor) {
      const message = `${name} document: version ${claims.version} is below the floor ${floor}`;
      throw new RefusedDocument(claims.version, "below-floor", message);
    }
    const stored = { jws, receivedAt: now };
    try {
      checkDocument(claims);
    } catch (error) {
      await this.#refused[name].save(stored);
      throw error;
    }
    const held = this.#held[name];
    if (claims.version === held?.version && claims.sub === held.sub) return claims;
    if (claims.version === held?.refused?.version && claims.sub === held.sub) {
      const message = `${name} document: version ${claims.version} was rolled back`;
      throw new RefusedDocument(claims.version, "rolled-back", message);
    }
    // The floor comes first: after a crash between the two, the same version is still accepted and no older one.
    if (claims.version > floor) {
      this.#floors[floorKey(claims)] = claims.version;
      await this.#floorFile.save(this.#floors);
    }
    const isUnproven = held !== undefined && this.isUnproven(name, held.version);
    await (isUnproven ? this.#files[name].supersede(stored) : this.#files[name].save(stored));
    this.#hold(stored);
    return claims;
  }

  /** Removes the cluster's document when the node is no longer a member. */
  leaveCluster(): Promise<void> {
    return this.#serially(async () => {
      if (this.#held.cluster === undefined) return;
      const { cluster: _left, ...rest } = this.#held;
      this.#held = rest;
      await this.#files.cluster.remove();
    });
  }

  /** Accepts any version of one document again: an operator's decision, after a control plane lost its count. */
  resetFloor(name: FloorName): Promise<FloorReset> {
    return this.#serially(() => this.#resetFloor(name));
  }

  async #resetFloor(name: FloorName): Promise<FloorReset> {
    if (name === "keys") {
      throw new InputError("not-supported", "the keys document follows its own chain of signatures and has no floor");
    }
    const mine = (key: string): boolean => key.startsWith(`${name}/`);
    const from = Math.max(0, ...Object.entries(this.#floors).flatMap(([key, floor]) => (mine(key) ? [floor] : [])));
    this.#floors = Object.fromEntries(Object.entries(this.#floors).filter(([key]) => !mine(key)));
    await this.#floorFile.save(this.#floors);
    await this.#forgetRefused(name);
    return { name, from, to: 0 };
  }

  /** Accepts the version again that was rolled back. */
  async #forgetRefused(name: DocumentName): Promise<void> {
    const stored = valueOf(await this.#files[name].load());
    if (stored?.refused === undefined) return;
    const { refused: _refused, ...kept } = stored;
    await this.#files[name].replace(kept);
    this.#held = withDocument(this.#held, kept);
  }

  /** Returns the previous copy of a document, if it can replace the newest. */
  async #previous(name: DocumentName): Promise<{ from: number; to: number; stored: Stored; newest: Stored }> {
    const held = this.#held[name];
    const newest = valueOf(await this.#files[name].load());
    if (held === undefined || newest === undefined || this.version(name) === 0) {
      throw new InputError("not-found", `this node has no ${name} document`);
    }
    const stored = await this.#files[name].previous();
    const claims = stored === undefined ? undefined : claimsOf(stored);
    if (stored === undefined || claims?.version === held.version || claims?.sub !== held.sub) {
      const why = held.refused === undefined ? "" : `: it is rolled back from ${held.refused.version} already`;
      throw new InputError("not-found", `no ${name} document before version ${held.version} is kept${why}`);
    }
    checkDocument(claims);
    if (claims.name === "node" && this.#held.node?.body.state === "INACTIVE") {
      const { state } = NodeDocument.parse(claims.body);
      if (state !== "INACTIVE") {
        throw new InputError(
          "inactive",
          `version ${held.version} switches the node off, and ${claims.version} would not`,
        );
      }
    }
    return { from: held.version, to: claims.version, stored, newest };
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

  #hold(stored: Stored): void {
    this.#held = withDocument(this.#held, stored);
  }

  /** Holds a stored document. One that the schema of this version rejects counts as damaged, and does not prevent the start. */
  #restore(name: DocumentName, stored: Stored): boolean {
    try {
      this.#hold(stored);
      return true;
    } catch {
      this.damage.push({ file: `desired/${name}.json`, isRecovered: false });
      return false;
    }
  }

  /** Raises floors that were lost, or are from the previous copy, to the versions held. */
  #raiseFloors(): void {
    for (const name of DocumentName.options) {
      const held = this.#held[name];
      if (held === undefined) continue;
      const key = floorKey({ name, sub: held.sub });
      this.#floors[key] = Math.max(this.#floors[key] ?? 0, held.version, held.refused?.version ?? 0);
    }
  }

  #note(name: string, loaded: Loaded<unknown>): void {
    const damage = damageOf(`desired/${name}.json`, loaded);
    if (damage !== undefined) this.damage.push(damage);
  }
}

function floorKey(claims: Pick<DocumentClaims, "name" | "sub">): string {
  return `${claims.name}/${claims.sub}`;
}

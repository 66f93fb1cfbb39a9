import { generateKeyPairSync } from "node:crypto";
import { importJWK } from "jose";
import { z } from "zod";
import { InternalError } from "../../errors.ts";
import type { Files } from "../../host/files/files.ts";
import { stateFile, type StateFile } from "../../host/files/state-file.ts";
import { KeysClaims, NodeIdentity, Origin } from "../../protocol/documents/claims.ts";
import {
  Ed25519PublicKey,
  P256PublicKey,
  thumbprint,
  X25519PublicKey,
  type NodeKeys,
} from "../../protocol/values/keys.ts";
import type { KeySet, Signer } from "../../protocol/channel/jws.ts";
import { keySetOf } from "../../protocol/channel/keys-chain.ts";
import { Base64Url32, Text64 } from "../../protocol/values/values.ts";
import { serialQueue } from "../../lib/async/serial-queue.ts";

const Private = { d: Base64Url32 };

/** The node's three private keys as JWKs (RFC 8037, RFC 7518). They never leave the machine. */
export const PrivateKeys = z.object({
  auth: Ed25519PublicKey.extend(Private),
  overlay: P256PublicKey.extend(Private),
  wireguard: X25519PublicKey.extend(Private),
});
export type PrivateKeys = z.infer<typeof PrivateKeys>;

/** The control plane that the node trusts: the origin it registered with, and the newest accepted keys document. */
export const ControlPlane = z.object({ iss: Origin, keys: KeysClaims });
export type ControlPlane = z.infer<typeof ControlPlane>;

/** The identity of a registered node and its control plane; one file, so that neither exists without the other. */
export const Registration = z.object({ node: NodeIdentity, controlPlane: ControlPlane });
export type Registration = z.infer<typeof Registration>;

/** The control plane that a node trusts, the node, and the keys whose signatures it accepts. */
export interface Trust {
  readonly iss: string;
  readonly uid: string;
  readonly keys: KeySet;
}

export async function trustOf({ node, controlPlane }: Registration): Promise<Trust> {
  return { iss: controlPlane.iss, uid: node.uid, keys: await keySetOf(controlPlane.keys.signing) };
}

/** The files below `identity/`. */
export interface IdentityFiles {
  readonly keys: StateFile<PrivateKeys>;
  readonly registration: StateFile<Registration>;
  readonly counter: StateFile<Counter>;
  readonly addresses: StateFile<Addresses>;
  /** Runs one registration at a time: two at once would each make keys, and only the last would be on disk. */
  readonly oneAtATime: <T>(work: () => Promise<T>) => Promise<T>;
}

const Counter = z.object({ n: z.int().min(1) });
type Counter = z.infer<typeof Counter>;

/** Addresses of the control plane that worked, the last one first, for use when no name can be resolved. */
export const Addresses = z.object({ addresses: z.array(Text64).max(8) });
export type Addresses = z.infer<typeof Addresses>;

export function identityFiles(files: Files, stateDir: string): IdentityFiles {
  const at = (name: string): string => `${stateDir}/identity/${name}.json`;
  return {
    keys: stateFile(files, { path: at("keys"), schema: PrivateKeys, keepsPrevious: true }),
    registration: stateFile(files, { path: at("registration"), schema: Registration, keepsPrevious: true }),
    counter: stateFile(files, { path: at("counter"), schema: Counter, keepsPrevious: true }),
    addresses: stateFile(files, { path: at("addresses"), schema: Addresses, keepsPrevious: false }),
    oneAtATime: serialQueue(),
  };
}

export function generateKeys(): PrivateKeys {
  return PrivateKeys.parse({
    auth: generateKeyPairSync("ed25519").privateKey.export({ format: "jwk" }),
    overlay: generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey.export({ format: "jwk" }),
    wireguard: generateKeyPairSync("x25519").privateKey.export({ format: "jwk" }),
  });
}

/** Returns the public keys only. */
export function publicKeys(keys: PrivateKeys): NodeKeys {
  return {
    auth: Ed25519PublicKey.parse(keys.auth),
    overlay: P256PublicKey.parse(keys.overlay),
    wireguard: X25519PublicKey.parse(keys.wireguard),
  };
}

/** Returns the signer of the node: its `auth` key with its thumbprint as `kid`. */
export async function authSigner(keys: PrivateKeys): Promise<Signer> {
  const privateKey = await importJWK(keys.auth, "Ed25519");
  if (privateKey instanceof Uint8Array) throw new InternalError("internal", "an Ed25519 key cannot be symmetric");
  return { kid: await thumbprint(publicKeys(keys).auth), privateKey };
}

/**
 * The session counter, on disk before use. It starts at the wall clock's milliseconds, so that a counter lost with its previous copy
 * continues above every earlier one. While the disk refuses writes the counter continues in memory, no lower than the wall clock, so
 * that a restart does not repeat it.
 */
export class SessionCounter {
  readonly #file: StateFile<Counter>;
  readonly #now: () => number;
  readonly #onFault: (error: unknown) => void;
  #last: number;
  #isKept = true;

  private constructor(file: StateFile<Counter>, now: () => number, onFault: (error: unknown) => void, last: number) {
    this.#file = file;
    this.#now = now;
    this.#onFault = onFault;
    this.#last = last;
  }

  static async open(
    file: StateFile<Counter>,
    now: () => number,
    onFault: (error: unknown) => void,
  ): Promise<SessionCounter> {
    const stored = await file.load();
    // The previous copy may be one behind the last number used; the step leaves room for it.
    const last = stored.is === "good" ? stored.value.n : stored.is === "recovered" ? stored.value.n + 1000 : 0;
    const counter = new SessionCounter(file, now, onFault, last);
    // The previous copy must not stay behind, in case it is needed again.
    if (stored.is === "recovered") await counter.keep();
    return counter;
  }

  async next(): Promise<number> {
    this.#last = this.#last === 0 ? this.#now() : this.#last + 1;
    await this.keep();
    if (!this.#isKept) this.#last = Math.max(this.#last, this.#now());
    return this.#last;
  }

  /** Writes the counter again, after the disk has refused it. */
  async keep(): Promise<void> {
    try {
      await this.#file.save({ n: this.#last });
      this.#isKept = true;
    } catch (error) {
      this.#isKept = false;
      this.#onFault(error);
    }
  }
}

import { randomInt } from "node:crypto";
import { InputError } from "../../../errors.ts";
import type { Clock } from "../../../host/clock.ts";
import { parseCidr } from "../../../lib/net/cidr.ts";
import { CODE_ALPHABET, CODE_LENGTH, type ActivationAnswer } from "../../../protocol/channel/activation.ts";
import type { ActivationClaims, Device } from "../../../protocol/documents/claims.ts";
import { peekClaims, verifyJws } from "../../../protocol/channel/jws.ts";
import { thumbprint } from "../../../protocol/values/keys.ts";
import type { NodeType } from "../../../protocol/values/values.ts";
import { FailureLimiter } from "../../http/failure-limiter.ts";
import type { Source } from "../../http/sources.ts";

export interface ActivationsDeps {
  readonly clock: Clock;
  readonly origin: string;
  /** Issues a license bound to the key thumbprint `jkt`. */
  readonly issue: (request: { name: string; type: NodeType; jkt: string; user: string }) => Promise<string>;
}

/** A machine that shows an activation code, as an operator sees it. */
export interface ShownMachine {
  readonly device: Device;
  /** Thumbprint of its key, which the machine also shows. */
  readonly key: string;
  readonly address: string;
  readonly expiresInSeconds: number;
}

/** User and source of an entered code; limits of wrong codes apply to them. */
export interface Guesser {
  readonly user: string;
  readonly source: Source;
}

interface Entry {
  readonly key: string;
  readonly source: Source;
  readonly network: string;
  readonly expiresAt: number;
  code: string;
  device: Device;
  seq: number;
  /** Set while the license of a used code is being issued. */
  isTaken: boolean;
  license: string | undefined;
}

const LIFETIME_MS = 15 * 60_000;
const POLL_SECONDS = 5;
/** Limits of machines that show a code: in total, per network (/24, IPv6 /48), and per prefix (address, IPv6 /64). */
export const MAX_SHOWN = 1024;
export const MAX_SHOWN_PER_NETWORK = 64;
export const MAX_SHOWN_PER_PREFIX = 16;
/** Limits of wrong codes per minute: of one user from one prefix, and of one user in total. */
export const MAX_WRONG = 10;
const MAX_WRONG_PER_USER = 60;

/**
 * Machines without a license that show a code for an operator to enter. A code belongs to the key that requested it: only that key
 * receives the license, and the license registers no other key. All state is in memory. A code stays valid until it expires: at a limit,
 * new machines are rejected.
 */
export class Activations {
  readonly #deps: ActivationsDeps;
  readonly #byKey = new Map<string, Entry>();
  readonly #byCode = new Map<string, Entry>();
  readonly #wrong: FailureLimiter;
  readonly #wrongPerUser: FailureLimiter;

  constructor(deps: ActivationsDeps) {
    this.#deps = deps;
    this.#wrong = new FailureLimiter(deps.clock, MAX_WRONG);
    this.#wrongPerUser = new FailureLimiter(deps.clock, MAX_WRONG_PER_USER);
  }

  /**
   * Answers a machine: with its code, the same until it expires, or with its license.
   * @throws {InputError} `bad-signature`, `invalid-claims`; `replayed` for a repeated message; `too-many`
   */
  async ask(jws: string, source: Source): Promise<ActivationAnswer> {
    const claims = await this.#verify(jws);
    const key = await thumbprint(claims.keys.auth);
    this.#dropExpired();
    const entry = this.#byKey.get(key) ?? this.#admit(key, claims, source);
    if (claims.seq <= entry.seq) {
      throw new InputError("replayed", "activation: seq is not above that of an earlier message of this key", {
        details: { seq: entry.seq },
      });
    }
    entry.seq = claims.seq;
    if (entry.license !== undefined) return { state: "approved", license: entry.license };
    return {
      state: "pending",
      code: entry.code,
      expiresInSeconds: this.#secondsLeft(entry),
      pollSeconds: POLL_SECONDS,
    };
  }

  /** Returns the seconds until a user may enter another code; undefined if at once. */
  waitSeconds(guesser: Guesser): number | undefined {
    return this.#wrong.waitSeconds(pairOf(guesser)) ?? this.#wrongPerUser.waitSeconds(guesser.user);
  }

  /** Returns the machine that shows a code. @throws {InputError} `not-found`, which counts as a wrong code; `too-many-failures` */
  find(code: string, guesser: Guesser): ShownMachine {
    return this.#shown(this.#entry(code, guesser));
  }

  /**
   * Consumes a code and issues a license with this name. If the name is rejected, the code stays valid.
   * @throws {InputError} as `find`, and as issuing the license
   */
  async approve(
    code: string,
    guesser: Guesser,
    { name, type }: { readonly name: string; readonly type: NodeType },
  ): Promise<ShownMachine & { readonly license: string }> {
    const entry = this.#entry(code, guesser);
    entry.isTaken = true;
    try {
      entry.license = await this.#deps.issue({ name, type, jkt: entry.key, user: guesser.user });
    } finally {
      entry.isTaken = entry.license !== undefined;
    }
    this.#byCode.delete(entry.code);
    return { ...this.#shown(entry), license: entry.license };
  }

  async #verify(jws: string): Promise<ActivationClaims> {
    const { keys } = peekClaims("holdfast-activation+jwt", jws);
    const claims = await verifyJws("holdfast-activation+jwt", jws, new Map([[await thumbprint(keys.auth), keys.auth]]));
    if (claims.aud !== this.#deps.origin) throw new InputError("bad-signature", `aud: must be ${this.#deps.origin}`);
    return claims;
  }

  #entry(code: string, guesser: Guesser): Entry {
    // Checked before the lookup, so that a correct code gets the same answer.
    if (this.waitSeconds(guesser) !== undefined) {
      throw new InputError("too-many-failures", "too many wrong activation codes; try again later");
    }
    this.#dropExpired();
    const entry = this.#byCode.get(code);
    if (entry !== undefined && !entry.isTaken) return entry;
    this.#wrong.failed(pairOf(guesser));
    this.#wrongPerUser.failed(guesser.user);
    throw new InputError("not-found", "code: no machine shows this code; it may have expired or been used");
  }

  #shown(entry: Entry): ShownMachine {
    const { device, key, source } = entry;
    return { device, key, address: source.address, expiresInSeconds: this.#secondsLeft(entry) };
  }

  #admit(key: string, { device }: ActivationClaims, source: Source): Entry {
    this.#checkLimits(source);
    const entry: Entry = {
      key,
      source,
      network: networkOf(source),
      code: this.#freshCode(),
      device,
      seq: -1,
      expiresAt: this.#deps.clock.elapsed() + LIFETIME_MS,
      isTaken: false,
      license: undefined,
    };
    this.#byKey.set(key, entry);
    this.#byCode.set(entry.code, entry);
    return entry;
  }

  /** @throws {InputError} `too-many` if the source has reached a limit of shown codes */
  #checkLimits(source: Source): void {
    const hint = "have a code entered, or try again in 15 minutes";
    const refuse = (count: number, scope: string): InputError =>
      new InputError("too-many", `${count} machines${scope} show a code already: ${hint}`);
    // An entered code is not shown and does not count; its machine only fetches the license.
    if (this.#byCode.size >= MAX_SHOWN) throw refuse(MAX_SHOWN, "");
    // A front end hides its clients, so its address does not identify them.
    if (source.prefix === undefined) return;
    const network = networkOf(source);
    const near = [...this.#byCode.values()].filter((entry) => entry.network === network);
    const ofPrefix = near.filter((entry) => entry.source.prefix === source.prefix).length;
    if (ofPrefix >= MAX_SHOWN_PER_PREFIX) throw refuse(MAX_SHOWN_PER_PREFIX, " of this address");
    if (near.length >= MAX_SHOWN_PER_NETWORK) throw refuse(MAX_SHOWN_PER_NETWORK, ` of the network ${network}`);
  }

  #dropExpired(): void {
    const now = this.#deps.clock.elapsed();
    // All have the same lifetime, so the oldest come first.
    for (const entry of this.#byKey.values()) {
      if (entry.expiresAt > now) return;
      this.#forget(entry);
    }
  }

  #forget(entry: Entry): void {
    this.#byKey.delete(entry.key);
    this.#byCode.delete(entry.code);
  }

  #freshCode(): string {
    for (;;) {
      const code = Array.from({ length: CODE_LENGTH }, () => CODE_ALPHABET[randomInt(CODE_ALPHABET.length)]).join("");
      if (!this.#byCode.has(code)) return code;
    }
  }

  #secondsLeft({ expiresAt }: Entry): number {
    return Math.max(0, Math.floor((expiresAt - this.#deps.clock.elapsed()) / 1000));
  }
}

const pairOf = ({ user, source }: Guesser): string => `${user} ${source.prefix ?? source.address}`;

/** Returns the network whose addresses likely belong to one owner: a /24 for IPv4, a /48 for IPv6. */
function networkOf({ address }: Source): string {
  const bits = address.includes(":") ? 48 : 24;
  return parseCidr(`${address}/${bits}`)?.text ?? address;
}

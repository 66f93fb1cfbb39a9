import { isIP } from "node:net";
import { plainAddress } from "../../lib/net/plain-address.ts";

/** Bytes that any datagram may be answered with: one packet. */
const ANSWER_BYTES = 1500;
/** Bytes that may be sent to a prefix, relative to the bytes received from it. */
const FACTOR = 3;
/** Rate and burst of answers beyond that. */
const EXCESS_BYTES_PER_MS = (1024 * 1024) / 1000;
const EXCESS_BURST_BYTES = 64 * 1024;
/** Maximum unused credit. */
const MAX_CREDIT_BYTES = 1024 * 1024;
const MAX_NEW_A_SECOND = 1000;
const SECOND_MS = 1000;
const MAX_PREFIXES = 10_000;

interface Prefix {
  credit: number;
  excess: number;
  refilledAt: number;
  second: number;
  newInSecond: number;
}

/**
 * Limits UDP clients by the prefix of their address (/24, /64): new sessions per second, and bytes sent to them. A
 * source address may be forged and nothing proves it, so each received datagram earns credit for answers.
 */
export class SourcePrefixes {
  readonly #prefixes = new Map<string, Prefix>();

  /** Counts a new session; false if the prefix exceeded 1,000 within the second. */
  admitsNew(address: string, now: number): boolean {
    const prefix = this.#touched(address, now);
    if (now - prefix.second >= SECOND_MS) {
      prefix.second = now;
      prefix.newInSecond = 0;
    }
    prefix.newInSecond += 1;
    return prefix.newInSecond <= MAX_NEW_A_SECOND;
  }

  /** Counts a received datagram, which earns credit for answers. */
  received(address: string, bytes: number, now: number): void {
    const prefix = this.#touched(address, now);
    const refill = (now - prefix.refilledAt) * EXCESS_BYTES_PER_MS;
    prefix.excess = Math.min(EXCESS_BURST_BYTES, prefix.excess + refill);
    prefix.refilledAt = now;
    const excess = Math.min(prefix.excess, Math.max(0, ANSWER_BYTES - FACTOR * bytes));
    prefix.excess -= excess;
    prefix.credit = Math.min(MAX_CREDIT_BYTES, prefix.credit + FACTOR * bytes + excess);
  }

  /** Takes the bytes of an answer; false if the prefix has not enough credit. */
  admits(address: string, bytes: number): boolean {
    const prefix = this.#prefixes.get(prefixOf(address));
    if (prefix === undefined || prefix.credit < bytes) return false;
    prefix.credit -= bytes;
    return true;
  }

  /** Returns a prefix as most recently used; evicts the least recently used one beyond 10,000. */
  #touched(address: string, now: number): Prefix {
    const key = prefixOf(address);
    const prefix = this.#prefixes.get(key) ?? newPrefix(now);
    this.#prefixes.delete(key);
    this.#prefixes.set(key, prefix);
    const [oldest] = this.#prefixes.keys();
    if (this.#prefixes.size > MAX_PREFIXES && oldest !== undefined) this.#prefixes.delete(oldest);
    return prefix;
  }
}

function newPrefix(now: number): Prefix {
  return { credit: 0, excess: EXCESS_BURST_BYTES, refilledAt: now, second: -Infinity, newInSecond: 0 };
}

/** Returns the first three bytes of an IPv4 address, or the first four groups of an IPv6 one. */
function prefixOf(text: string): string {
  const address = plainAddress(text);
  if (isIP(address) === 4) return address.slice(0, address.lastIndexOf("."));
  const [head = "", tail] = address.split("::");
  const groups = head === "" ? [] : head.split(":");
  const missing = tail === undefined ? 0 : 8 - groups.length - (tail === "" ? 0 : tail.split(":").length);
  return [...groups, ...Array<string>(Math.max(0, missing)).fill("0"), ...(tail ?? "").split(":")]
    .slice(0, 4)
    .join(":");
}

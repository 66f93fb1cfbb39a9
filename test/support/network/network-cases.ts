import { expect, it } from "vitest";
import { describeIssues } from "../../../src/protocol/channel/envelope.ts";
import { NetworkSection } from "../../../src/protocol/sections/network/network.ts";
import { readNetwork, type NetworkContext } from "../../../src/protocol/sections/network/read.ts";

/** Valid parts of a section, to be falsified one field at a time. */
export const nic = (more = {}) => ({ nic: "eth1", ip: "10.0.0.2/24", ...more });
export const vlan = (more = {}) => ({ vlanID: 5, ip: "10.5.0.2/24", ...more });
export const acl = (more = {}) => ({
  protocol: "tcp",
  source: "10.0.0.0/8",
  dest: "10.0.0.0/8",
  action: "allow",
  ...more,
});
export const ipsec = (more = {}) => ({
  type: "ipsec",
  name: "ips0",
  enabled: true,
  mtu: 1436,
  destination: "203.0.113.7",
  ikeCipher: "aes256-sha256",
  ikeGroup: 14,
  ipsecCipher: "aes256-sha256",
  psk: "s3cret",
  ...more,
});
const KEY = Buffer.alloc(32, 7).toString("base64");
export const wg = (more = {}) => ({
  type: "wireguard",
  name: "wg0",
  enabled: true,
  mtu: 1400,
  ip: "10.9.0.1/30",
  publicKey: KEY,
  ...more,
});

/** The result of a section with mistakes; paths are below `network`. */
export interface NetworkCase {
  readonly name: string;
  /** The section and its context. */
  readonly given: readonly [section: unknown, context?: Partial<NetworkContext>];
  /** Items that a node skips, and what it uses otherwise. */
  readonly rejected?: readonly string[];
  readonly notices?: readonly string[];
  /** Issues that the API reports. */
  readonly refused?: readonly string[];
}

const short = (issues: readonly { readonly code: string; readonly message: string }[]): string[] =>
  issues.map(({ code, message }) => `${code} ${message.replace("network.", "")}`);

/** Checks each case with the node's parser and with the API. */
export function checkCases(cases: readonly NetworkCase[]): void {
  it.each(cases)("$name", ({ given: [section, context], rejected = [], notices = [], refused = [] }) => {
    const before = structuredClone(section);
    const read = readNetwork(section, { nodeType: "Node", isMember: false, ...context });
    expect({ rejected: short(read.rejected), notices: short(read.notices) }).toEqual({ rejected, notices });
    const parsed = NetworkSection.safeParse(section);
    const lines = parsed.success ? [] : describeIssues(parsed.error, "network");
    expect(lines.map((line) => line.replace("network.", ""))).toEqual(refused);
    expect(section).toEqual(before);
  });
}

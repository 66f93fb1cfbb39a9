import type { TriggerEvent } from "../../protocol/values/trigger-events.ts";

const printed = (message: string) => ({ output: { message, exitCode: "0", truncated: false } });

const flow = {
  sip: "192.0.2.7",
  dip: "198.51.100.7",
  p: "tcp",
  sport: 40_002,
  dport: 443,
  state: "ESTABLISHED",
  br: 18_400,
  bw: 920,
  con: 12,
  def: false,
};

/** Examples of bodies and answers of events; those of other events follow from their schemas. */
export const eventExamples: Readonly<
  Partial<Record<TriggerEvent, { readonly body?: object; readonly answer?: object }>>
> = {
  flows: {
    body: { action: "read", protocol: "tcp" },
    answer: { result: { icmp: [], tcp: [flow], udp: [] }, total: 1 },
  },
  "gateway-ping": {
    body: { dest: "edge-2", count: 2 },
    answer: printed("64 bytes from edge-2: seq=1 time=8.41 ms\n64 bytes from edge-2: seq=2 time=8.39 ms\n"),
  },
  "node-push-logs": {
    body: { inline: true },
    answer: { name: "holdfast-edge-1.tar.gz", bytes: 4, sha256: "0".repeat(64), missing: [], archive: "H4sIAA==" },
  },
  "tg-nc": {
    body: { host: "192.0.2.10", port: 443 },
    answer: { output: { message: "192.0.2.10:443 succeeded", exitCode: "0" } },
  },
  "tg-ping": {
    body: { host: "192.0.2.10", count: 1 },
    answer: printed("64 bytes from 192.0.2.10: icmp_seq=1 ttl=64 time=0.41 ms\n"),
  },
  "tg-tcpdump": { body: { iface: "ens3" } },
  "tg-traceroute": {
    body: { host: "192.0.2.10" },
    answer: printed("traceroute to 192.0.2.10, 30 hops max\n 1  192.0.2.1  0.30 ms\n 2  192.0.2.10  0.41 ms\n"),
  },
};

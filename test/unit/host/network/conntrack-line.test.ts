import { expect, test } from "vitest";
import { parseFlow } from "../../../../src/host/network/conntrack-line.ts";

// As printed by conntrack 1.4.7 with -o extended,id,timestamp.
const TCP =
  "ipv4     2 tcp      6 431998 ESTABLISHED src=10.77.0.1 dst=10.77.0.2 sport=37126 dport=8080 packets=3 bytes=167 src=10.77.0.2 dst=10.77.0.1 sport=8080 dport=37126 packets=2 bytes=112 [ASSURED] mark=0 delta-time=2 use=1 id=2522129265";
const UNREPLIED =
  "ipv4     2 udp      17 28 src=10.77.0.1 dst=10.77.0.2 sport=44657 dport=9090 packets=1 bytes=30 [UNREPLIED] src=10.77.0.2 dst=10.77.0.1 sport=9090 dport=44657 packets=0 bytes=0 mark=0 delta-time=2 use=1 id=1681457309";
const ICMP =
  "ipv4     2 icmp     1 28 src=10.77.0.1 dst=10.77.0.2 type=8 code=0 id=25295 packets=2 bytes=168 src=10.77.0.2 dst=10.77.0.1 type=0 code=0 id=25296 packets=2 bytes=168 mark=0 delta-time=2 use=1 id=3421016231";
const ICMP6 =
  "ipv6     10 icmpv6   58 29 src=::1 dst=::1 type=128 code=0 id=4071 src=::1 dst=::1 type=129 code=0 id=4071 mark=0 use=1 id=2942275421";
const TRANSLATED =
  "ipv6     10 tcp      6 119 SYN_SENT src=fd00::1 dst=fd00::2 sport=36292 dport=8081 [UNREPLIED] src=fd00::2 dst=fd01::9 sport=8081 dport=1024 mark=0 use=1 id=229028669";
const OFFLOADED =
  "ipv4     2 tcp      6 src=10.0.0.1 dst=10.0.0.2 sport=1 dport=2 packets=3 bytes=167 src=10.0.0.2 dst=10.0.0.1 sport=2 dport=1 packets=2 bytes=112 [OFFLOAD] mark=0 use=2 id=1";
const OTHER =
  "ipv4     2 gre      47 29 src=10.0.0.1 dst=10.0.0.2 srckey=0x0 dstkey=0x0 src=10.0.0.2 dst=10.0.0.1 srckey=0x0 dstkey=0x0 mark=0 use=1 id=7";

test("a connection with its counters and its age", () => {
  expect(parseFlow(TCP)).toEqual({
    family: 4,
    protocol: "tcp",
    state: "ESTABLISHED",
    original: { source: "10.77.0.1", dest: "10.77.0.2", sourcePort: 37_126, destPort: 8080 },
    reply: { source: "10.77.0.2", dest: "10.77.0.1", sourcePort: 8080, destPort: 37_126 },
    sentBytes: 167,
    receivedBytes: 112,
    ageSeconds: 2,
  });
});

test("a side without packets has sent zero, which is not unknown", () => {
  expect(parseFlow(UNREPLIED)).toMatchObject({ protocol: "udp", sentBytes: 30, receivedBytes: 0 });
  expect(parseFlow(UNREPLIED)).not.toHaveProperty("state");
});

test("the ids of an echo are not that of the entry, and a flow without counters has no bytes", () => {
  expect(parseFlow(ICMP)).toMatchObject({ original: { icmpId: 25_295 }, reply: { icmpId: 25_296 } });
  const uncounted = parseFlow(ICMP6);
  expect(uncounted).toMatchObject({ family: 6, protocol: "icmpv6", original: { icmpId: 4071 } });
  expect(Object.keys(uncounted ?? {}).sort()).toEqual(["family", "original", "protocol", "reply"]);
});

test("translations, flows offloaded to hardware, and protocols without ports", () => {
  expect(parseFlow(TRANSLATED)?.reply).toEqual({
    source: "fd00::2",
    dest: "fd01::9",
    sourcePort: 8081,
    destPort: 1024,
  });
  expect(parseFlow(OFFLOADED)).toMatchObject({ original: { destPort: 2 }, sentBytes: 167 });
  expect(parseFlow(OFFLOADED)).not.toHaveProperty("state");
  expect(parseFlow(OTHER)).toMatchObject({ protocol: "gre", original: { source: "10.0.0.1", dest: "10.0.0.2" } });
});

test.each([
  "",
  "conntrack v1.4.7 (conntrack-tools): 3 flow entries have been shown.",
  "ipv4     2 tcp      6 431998 ESTABLISHED",
  "ipv4     2 tcp      6 431998 ESTABLISHED src=10.0.0.1 dst=10.0.0.2 sport=1 dport=2",
  "ipv4     2 tcp      6 9 src= dst=10.0.0.2",
  "arp 1 2 3 src=10.0.0.1 dst=10.0.0.2 src=10.0.0.2 dst=10.0.0.1",
])("%j is not a flow", (line) => {
  expect(parseFlow(line)).toBeUndefined();
});

test("an invalid number is unknown", () => {
  expect(parseFlow(TCP.replace("bytes=167", "bytes=-1").replace("sport=37126", "sport=x"))).toEqual({
    family: 4,
    protocol: "tcp",
    state: "ESTABLISHED",
    original: { source: "10.77.0.1", dest: "10.77.0.2", destPort: 8080 },
    reply: { source: "10.77.0.2", dest: "10.77.0.1", sourcePort: 8080, destPort: 37_126 },
    receivedBytes: 112,
    ageSeconds: 2,
  });
});

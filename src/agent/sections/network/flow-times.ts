/** nf_conntrack-sysctl of the kernel: desired values and the kernel's defaults, in seconds. */
const TIMES: readonly (readonly [name: string, wanted: string, initial: string])[] = [
  ["tcp_timeout_syn_sent", "15", "120"],
  ["tcp_timeout_syn_recv", "15", "60"],
  ["tcp_timeout_established", "900", "432000"],
  ["tcp_timeout_fin_wait", "60", "120"],
  ["tcp_timeout_close_wait", "60", "60"],
  ["tcp_timeout_last_ack", "60", "30"],
  ["tcp_timeout_time_wait", "60", "120"],
  ["tcp_timeout_close", "60", "10"],
  ["udp_timeout", "60", "30"],
  ["udp_timeout_stream", "60", "120"],
  ["icmp_timeout", "5", "30"],
];

const sysctl = (name: string): string => `net.netfilter.nf_conntrack_${name}`;

/** Sysctls of the kernel's flow timeouts. */
export const FLOW_SYSCTLS: readonly (readonly [name: string, value: string])[] = TIMES.map(([name, wanted]) => [
  sysctl(name),
  wanted,
]);

/** The kernel's defaults, for when connection tracking is not loaded and its values cannot be read. */
export const INITIAL_FLOW_SYSCTLS: ReadonlyMap<string, string> = new Map(
  TIMES.map(([name, , initial]) => [sysctl(name), initial]),
);

import { DIRECTORIES, JSON_OPTION, TIMEOUT } from "../frame/verb-options.ts";
import type { Verb } from "../frame/verb.ts";

const COMMON = { ...JSON_OPTION, ...TIMEOUT, ...DIRECTORIES } as const;

/** The verbs that look at the network of this machine. */
export const networkVerbs: readonly Verb[] = [
  {
    name: "routes",
    summary: "show the IPv4 routes and rules of this machine, and which are of Holdfast; or the way to an address",
    about: "A star marks what this agent made. With an address it exits with 1 when no route leads there.",
    arguments: [{ name: "address", isRequired: false, help: "the IPv4 address to find the way to", complete: "none" }],
    options: {
      table: { value: "NUMBER", help: "only this routing table (254 is main)" },
      ours: { help: "only what this agent made" },
      ...COMMON,
    },
    exits: ["ok", "failed", "usage", "unreachable", "timeout"],
    example: "holdfast routes 192.0.2.1",
    load: async () => (await import("./routes.ts")).routesVerb,
  },
  {
    name: "nats",
    summary: "show the address translations of this node and how often each was hit",
    about: "Hits are flows, counted since the agent started or --reset. Needs root.",
    arguments: [{ name: "tracker", isRequired: false, help: "only the one of this tracker id", complete: "none" }],
    options: { reset: { help: "count anew: the one, or without a tracker all of them" }, ...COMMON },
    exits: ["ok", "failed", "usage", "unreachable", "timeout"],
    example: "holdfast nats",
    load: async () => (await import("./nats.ts")).natsVerb,
  },
  {
    name: "flows",
    summary: "show the flows that the kernel tracks, or make it forget them",
    about:
      "Addresses and ports are those that a flow began with. Bytes and age are known of flows that began after the first look. " +
      "--delete needs a filter, or --all. Needs root.",
    arguments: [],
    options: {
      protocol: { short: "p", value: "NAME", help: "icmp, tcp or udp", complete: ["icmp", "tcp", "udp"] },
      source: { short: "s", value: "CIDR", help: "from these addresses" },
      dest: { short: "d", value: "CIDR", help: "to these addresses" },
      sport: { value: "PORT", help: "from this port" },
      dport: { value: "PORT", help: "to this port" },
      delete: { help: "make the kernel forget them" },
      all: { help: "with --delete: every flow" },
      ...COMMON,
    },
    exits: ["ok", "failed", "usage", "unreachable", "timeout"],
    example: "holdfast flows -p tcp --dport 443",
    timeoutSeconds: 35,
    load: async () => (await import("./flows.ts")).flowsVerb,
  },
  {
    name: "capture",
    summary: "show the packets of an interface, a line of headers each",
    about:
      "Never their content, and at most 500 lines a second. Ctrl-C ends it. With --json each line is one object. Needs root.",
    arguments: [
      { name: "interface", isRequired: true, help: "the interface", complete: "none" },
      { name: "filter", isRequired: false, help: "which packets, as one argument in pcap-filter(7)", complete: "none" },
    ],
    options: {
      count: { short: "c", value: "N", help: "how many packets (until Ctrl-C)" },
      to: {
        value: "PATH",
        help: "a file of the data store that gets the lines too, once it has ended",
        complete: "none",
      },
      ...COMMON,
    },
    exits: ["ok", "failed", "usage", "unreachable", "timeout", "interrupted"],
    example: "holdfast capture -c 10 eth0 'tcp port 443'",
    load: async () => (await import("./capture.ts")).captureVerb,
  },
  {
    name: "captures",
    summary: "capture whole packets into files of the data store",
    about:
      "'start' begins a capture that continues without this command, 'stop' ends it and gives its files their names in captures/, and without an " +
      "action it says how the capture stands and which files there are. The files contain whole packets, passwords included.",
    arguments: [
      {
        name: "action",
        isRequired: false,
        help: "status (by default), start or stop",
        complete: ["status", "start", "stop"],
      },
      { name: "interface", isRequired: false, help: "for start: where", complete: "none" },
      { name: "filter", isRequired: false, help: "for start: which packets, as pcap-filter(7)", complete: "none" },
    ],
    options: {
      megabytes: { short: "m", value: "N", help: "for start: of all files, 1 to 1000 (100); the oldest is removed" },
      seconds: { short: "s", value: "N", help: "for start: end after so long, at most a day" },
      count: { short: "c", value: "N", help: "for start: end after so many packets" },
      delete: { help: "for start: remove the files of earlier captures first" },
      ...JSON_OPTION,
      ...TIMEOUT,
      ...DIRECTORIES,
    },
    exits: ["ok", "failed", "usage", "unreachable", "timeout"],
    example: "holdfast captures start eth0 'tcp port 443' -m 50",
    timeoutSeconds: 60,
    load: async () => (await import("./captures.ts")).capturesVerb,
  },
];

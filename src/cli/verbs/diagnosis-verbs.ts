import { DIRECTORIES, JSON_OPTION, TIMEOUT } from "../frame/verb-options.ts";
import type { OptionSpec, Verb } from "../frame/verb.ts";

const CONFIG = {
  config: { value: "FILE", help: "local settings (/etc/holdfast/agent.json, if it is there)", complete: "file" },
} as const satisfies Record<string, OptionSpec>;

/** The verbs for when something is wrong. */
export const diagnosisVerbs: readonly Verb[] = [
  {
    name: "diag",
    summary: "show the live diagnostics of this node on one page",
    about:
      "Health, load and units; DNS, connections and TLS to the control plane and each gateway; name servers, package repository, " +
      "interfaces and errors. The agent runs its diagnostic events; without an agent only the checks that need none run. Needs root.",
    arguments: [],
    options: { ...JSON_OPTION, ...TIMEOUT, ...DIRECTORIES },
    exits: ["ok", "failed", "usage", "unregistered", "degraded", "timeout", "interrupted"],
    example: "holdfast diag",
    // A name server is asked three times, ten seconds apart.
    timeoutSeconds: 70,
    load: async () => (await import("./diag.ts")).diagVerb,
  },
  {
    name: "doctor",
    summary: "run every check there is, and say what to do",
    about:
      "Settings, state, units, agent, overlay, containers, network, resolver, time, firewall, kernel, limits and upgrade; with and without a " +
      "running agent, also where the node is not registered. What cannot be seen without root is skipped and named.",
    arguments: [],
    options: {
      ...CONFIG,
      ...JSON_OPTION,
      ...TIMEOUT,
      ...DIRECTORIES,
    },
    exits: ["ok", "failed", "usage", "degraded", "interrupted"],
    example: "holdfast doctor",
    timeoutSeconds: 5,
    load: async () => (await import("./doctor.ts")).doctorVerb,
  },
  {
    name: "bundle",
    summary: "collect state, logs and checks of this node into one archive, secrets left out",
    about:
      "A gzipped tar with a README that says what each file is and what is not in it. Works while the agent hangs or does not run, and as far " +
      "as it may without root. One is made at a time; it is for its owner alone (0600).",
    arguments: [],
    options: {
      to: {
        value: "FILE",
        help: "where to write it (holdfast-<node>-<time>.tar.gz here); - is standard output, store:PATH the node's data store",
        complete: "file",
      },
      max: { value: "SIZE", help: "bytes of its content, such as 50M (200M); the largest logs are cut first" },
      ...CONFIG,
      ...JSON_OPTION,
      ...TIMEOUT,
      ...DIRECTORIES,
    },
    exits: ["ok", "failed", "usage", "interrupted"],
    example: "holdfast bundle --to /tmp/node.tar.gz",
    timeoutSeconds: 5,
    load: async () => (await import("./bundle.ts")).bundleVerb,
  },
];

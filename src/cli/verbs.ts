import { sectionNames } from "../protocol/sections/sections.ts";
import { triggerEvents } from "../protocol/values/trigger-events.ts";
import { containerVerbs } from "./verbs/container-verbs.ts";
import { dataStoreVerbs } from "./verbs/data-store-verbs.ts";
import { diagnosisVerbs } from "./verbs/diagnosis-verbs.ts";
import { networkVerbs } from "./verbs/network-verbs.ts";
import { setupVerbSpec } from "./setup/spec.ts";
import { upgradeVerbs } from "./verbs/upgrade-verbs.ts";
import { DIRECTORIES, JSON_OPTION, TIMEOUT, WATCH } from "./frame/verb-options.ts";
import type { ArgumentSpec, Verb } from "./frame/verb.ts";

const SHELLS = ["bash", "zsh", "fish"] as const;
const license: ArgumentSpec = {
  name: "license",
  isRequired: false,
  help: "a file with the license, or - for standard input",
  complete: "file",
};

/** Every verb of the command line, in the order help shows them. */
export const verbs: readonly Verb[] = [
  {
    name: "agent",
    summary: "run the agent of this node",
    arguments: [],
    options: {
      config: { value: "FILE", help: "local settings (/etc/holdfast/agent.json, if it is there)", complete: "file" },
      ...DIRECTORIES,
    },
    exits: ["ok", "failed", "usage"],
    example: "holdfast agent --state /var/lib/holdfast --run /run/holdfast",
  },
  {
    name: "overlay",
    summary: "run the data plane of this node",
    about:
      "Carries the traffic of connectors and services, and goes on when the agent stops. SIGTERM lets its flows end first, for ten " +
      "minutes at most; a second one ends it at once.",
    arguments: [],
    options: {
      state: { value: "DIR", help: "its own state directory (/var/lib/holdfast-overlay)", complete: "directory" },
      run: { value: "DIR", help: "its own run directory (/run/holdfast-overlay)", complete: "directory" },
      successor: { help: "take over from the overlay that runs there, without refusing or cutting anything" },
      help: DIRECTORIES.help,
    },
    exits: ["ok", "failed", "usage"],
    example: "holdfast overlay --state /var/lib/holdfast-overlay --run /run/holdfast-overlay",
  },
  {
    name: "controller",
    summary: "run a complete small control plane",
    arguments: [],
    options: {
      listen: { value: "ADDRESS:PORT", help: "where to serve the HTTP API and the nodes (127.0.0.1:8480)" },
      data: { value: "DIR", help: "where its state lives (/var/lib/holdfast-controller)", complete: "directory" },
      "tls-cert": { value: "FILE", help: "certificate chain in PEM (self-made, except on loopback)", complete: "file" },
      "tls-key": { value: "FILE", help: "its private key in PEM", complete: "file" },
      tls: { help: "make a certificate and serve TLS on loopback too" },
      url: { value: "ORIGIN", help: "the address nodes dial (the one listened on)" },
      "front-pin": {
        value: "SHA256[,...]",
        help: "keys of the front end that ends TLS for an https --url, as base64url of SHA-256",
      },
      "trusted-proxy": {
        value: "ADDRESS[/BITS][,...]",
        help: "front ends whose X-Forwarded-For names the address of a client",
      },
      registry: { value: "ORIGIN", help: "the image registry, which takes this controller's tokens" },
      "registry-host": {
        value: "HOST[:PORT]",
        help: "what nodes call it in image references (the host of --registry)",
      },
      releases: {
        value: "DIR",
        help: "offer the files of this directory to everybody below /releases/",
        complete: "directory",
      },
      domain: { value: "FQDN", help: "the domain of the nodes, fixed at the first start (holdfast.example)" },
      state: { value: "DIR", help: "taken as every verb takes it, and not used: see --data", complete: "directory" },
      run: { value: "DIR", help: "where its pid file goes (the directory of --data)", complete: "directory" },
      help: DIRECTORIES.help,
    },
    exits: ["ok", "failed", "usage"],
    example: "holdfast controller --listen 127.0.0.1:8480 --data /var/lib/holdfast-controller",
  },
  {
    name: "register",
    summary: "register this node with a license, a code or a token",
    about: "Asks the running agent, or does it alone when none runs. Repeating it after a lost answer does no harm.",
    arguments: [license],
    options: {
      activate: { value: "ORIGIN", help: "show a code for an operator to enter at this control plane, and wait" },
      pin: { value: "SHA256[,...]", help: "TLS keys of that control plane, each a SHA-256 as base64url" },
      token: { value: "TOKEN", help: "an agent token, or - for standard input (AUTH_TOKEN)" },
      ...JSON_OPTION,
      ...TIMEOUT,
      ...DIRECTORIES,
    },
    exits: ["ok", "failed", "usage", "timeout"],
    example: "holdfast register license.jwt",
    timeoutSeconds: 60,
    load: async () => (await import("./verbs/register.ts")).registerVerb,
  },
  setupVerbSpec,
  {
    name: "reset",
    summary: "permanently remove this node's identity and configuration, or everything with --factory",
    about:
      "Reports to the control plane that the node deregisters, stops what it serves, removes its containers, and starts anew without " +
      "an identity; works with and without a running agent. The data store, volumes, images and the machine's network stay; with " +
      "--factory only images do, and a machine that is reached through the network that Holdfast set is cut off. Asks for the node's name first. " +
      "A reset that was cut short continues when the agent starts, or with the next reset.",
    arguments: [],
    options: {
      factory: { help: "also remove volumes, the data store and the network that Holdfast set" },
      yes: { short: "y", help: "do not ask" },
      ...JSON_OPTION,
      ...TIMEOUT,
      ...DIRECTORIES,
    },
    exits: ["ok", "failed", "usage", "unregistered", "timeout"],
    example: "holdfast reset --yes",
    timeoutSeconds: 120,
    load: async () => (await import("./verbs/reset.ts")).resetVerb,
  },
  {
    name: "reset-floor",
    summary: "let a document return to a lower version",
    about: "Only for a control plane that was restored from a backup and cannot count on from the node's version.",
    arguments: [
      {
        name: "document",
        isRequired: true,
        help: "keys, node, cluster or domain",
        complete: ["keys", "node", "cluster", "domain"],
      },
    ],
    options: { ...JSON_OPTION, ...TIMEOUT, ...DIRECTORIES },
    exits: ["ok", "failed", "usage", "unreachable", "timeout"],
    example: "holdfast reset-floor node",
    load: async () => (await import("./verbs/reset-floor.ts")).resetFloorVerb,
  },
  {
    name: "restart",
    summary: "restart the agent, and wait until it is back",
    about:
      "Like the trigger node-restart-service: reported to the control plane; traffic and containers are not affected. Needs a managed install; " +
      "refused during an upgrade. If the agent hangs, use 'systemctl restart holdfast-agent'.",
    arguments: [],
    options: { ...JSON_OPTION, ...TIMEOUT, ...DIRECTORIES },
    exits: ["ok", "failed", "usage", "unreachable", "timeout"],
    example: "holdfast restart",
    timeoutSeconds: 90,
    load: async () => (await import("./verbs/restart.ts")).restartVerb,
  },
  {
    name: "status",
    summary: "show how this node stands",
    arguments: [],
    options: {
      ...WATCH,
      ...JSON_OPTION,
      ...TIMEOUT,
      ...DIRECTORIES,
    },
    exits: ["ok", "failed", "usage", "unreachable", "unregistered", "degraded", "timeout"],
    example: "holdfast status --watch",
    load: async () => (await import("./verbs/status.ts")).statusVerb,
  },
  {
    name: "health",
    summary: "show what is well, what is not, and what to do",
    arguments: [],
    options: { ...JSON_OPTION, ...TIMEOUT, ...DIRECTORIES },
    exits: ["ok", "failed", "usage", "unreachable", "unregistered", "degraded", "timeout"],
    example: "holdfast health",
    load: async () => (await import("./verbs/health.ts")).healthVerb,
  },
  {
    name: "connectors",
    summary: "show what this node listens on, where it leads, and what it has counted",
    about:
      "Every connector of the configuration in force, also one that does not listen, with the reason. Counters start when a " +
      "connector's listener comes to be. A refused flow never reached its target.",
    arguments: [],
    options: { ...WATCH, ...JSON_OPTION, ...TIMEOUT, ...DIRECTORIES },
    exits: ["ok", "failed", "usage", "unreachable", "degraded", "timeout"],
    example: "holdfast connectors --watch",
    load: async () => (await import("./verbs/connectors.ts")).connectorsVerb,
  },
  {
    name: "services",
    summary: "show what connectors can reach from this node, and whether it answers",
    arguments: [],
    options: { ...WATCH, ...JSON_OPTION, ...TIMEOUT, ...DIRECTORIES },
    exits: ["ok", "failed", "usage", "unreachable", "degraded", "timeout"],
    example: "holdfast services",
    load: async () => (await import("./verbs/services.ts")).servicesVerb,
  },
  {
    name: "gateways",
    summary: "show the gateways of this node: which path is up, since when, how good, and which one carries",
    about: "Every path, also one that is down, with the reason, and the gateway that this node itself is.",
    arguments: [],
    options: { ...WATCH, ...JSON_OPTION, ...TIMEOUT, ...DIRECTORIES },
    exits: ["ok", "failed", "usage", "unreachable", "degraded", "timeout"],
    example: "holdfast gateways --watch",
    load: async () => (await import("./verbs/gateways.ts")).gatewaysVerb,
  },
  {
    name: "peers",
    summary: "show the nodes that dial this one and the sessions with other nodes",
    arguments: [],
    options: { ...WATCH, ...JSON_OPTION, ...TIMEOUT, ...DIRECTORIES },
    exits: ["ok", "failed", "usage", "unreachable", "degraded", "timeout"],
    example: "holdfast peers",
    load: async () => (await import("./verbs/peers.ts")).peersVerb,
  },
  {
    name: "ping",
    summary: "ping another node through the tunnel, and show which gateway and path answer",
    about:
      "Ctrl-C ends it with a summary. It exits with 0 when anything was answered. With --json each line is one object, the last the summary.",
    arguments: [{ name: "node", isRequired: true, help: "its name, FQDN or uid", complete: "none" }],
    options: {
      count: { short: "c", value: "N", help: "how many times (until Ctrl-C, 600 at most)" },
      interval: { short: "i", value: "SECONDS", help: "time between two (1)" },
      size: { short: "s", value: "BYTES", help: "bytes to send each time (64)" },
      path: { value: "ID", help: "by this path of the gateway section, and no other" },
      ...JSON_OPTION,
      ...TIMEOUT,
      ...DIRECTORIES,
    },
    exits: ["ok", "failed", "usage", "unreachable", "timeout", "interrupted"],
    example: "holdfast ping -c 5 edge-2",
    load: async () => (await import("./verbs/ping.ts")).pingVerb,
  },
  {
    name: "netcheck",
    summary: "check the way to the control plane and to each gateway, and say what to do",
    about:
      "Names, TCP, TLS with the key that is meant, proxy, captive portal, clock and MTU; each passes, fails or is skipped. Needs root. " +
      "Without an agent it checks what that left on disk.",
    arguments: [],
    options: { ...JSON_OPTION, ...TIMEOUT, ...DIRECTORIES },
    exits: ["ok", "failed", "usage", "unreachable", "unregistered", "degraded", "timeout", "interrupted"],
    example: "holdfast netcheck",
    load: async () => (await import("./netcheck/netcheck.ts")).netcheckVerb,
  },
  ...diagnosisVerbs,
  {
    name: "speedtest",
    summary: "measure the way to the control plane's speed-test server",
    about: "With --json each line is one object, the last one done.",
    arguments: [
      {
        name: "direction",
        isRequired: false,
        help: "download, upload or both (both)",
        complete: ["download", "upload", "both"],
      },
    ],
    options: { ...JSON_OPTION, ...TIMEOUT, ...DIRECTORIES },
    exits: ["ok", "failed", "usage", "unreachable", "timeout", "interrupted"],
    example: "holdfast speedtest download",
    load: async () => (await import("./verbs/speedtest.ts")).speedtestVerb,
  },
  ...networkVerbs,
  ...containerVerbs,
  ...dataStoreVerbs,
  {
    name: "plan",
    summary: "show what a configuration would do on this machine, without doing it",
    about: "Without a document it is the configuration in force: what is left to do, or what drift would be put back.",
    arguments: [],
    options: {
      document: { value: "FILE", help: "a node's configuration as JSON, or - for standard input", complete: "file" },
      ...JSON_OPTION,
      ...TIMEOUT,
      ...DIRECTORIES,
    },
    exits: ["ok", "failed", "usage", "unreachable", "timeout"],
    example: "holdfast plan --document node.json",
    timeoutSeconds: 60,
    load: async () => (await import("./verbs/plan.ts")).planVerb,
  },
  {
    name: "why",
    summary: "show why something is not as it should be, and when it is tried again",
    arguments: [],
    options: { ...JSON_OPTION, ...TIMEOUT, ...DIRECTORIES },
    exits: ["ok", "failed", "usage", "unreachable", "degraded", "timeout"],
    example: "holdfast why",
    load: async () => (await import("./verbs/why.ts")).whyVerb,
  },
  {
    name: "config",
    summary: "show the configuration in force, or one section of it",
    about:
      "It is what the documents of the node and its cluster come to together; what is secret in it is shown as ***.",
    arguments: [
      { name: "action", isRequired: true, help: "show", complete: ["show"] },
      { name: "section", isRequired: false, help: "one section", complete: sectionNames },
    ],
    options: { secrets: { help: "show secrets as they are" }, ...JSON_OPTION, ...TIMEOUT, ...DIRECTORIES },
    exits: ["ok", "failed", "usage", "unreachable", "timeout"],
    example: "holdfast config show connectors",
    load: async () => (await import("./verbs/config.ts")).configVerb,
  },
  {
    name: "rollback",
    summary: "go back to the document before, until the control plane has a newer one",
    about:
      "The version that is taken back is not applied again, also after a restart. The node's state, peers and grants are part of " +
      "their document: a revoked grant comes back with the domain's.",
    arguments: [],
    options: {
      document: { value: "NAME", help: "node (default), cluster or domain", complete: ["node", "cluster", "domain"] },
      plan: { help: "only show the steps it would take" },
      ...JSON_OPTION,
      ...TIMEOUT,
      ...DIRECTORIES,
    },
    exits: ["ok", "failed", "usage", "unreachable", "timeout"],
    example: "holdfast rollback --plan",
    timeoutSeconds: 60,
    load: async () => (await import("./verbs/rollback.ts")).rollbackVerb,
  },
  {
    name: "network",
    summary: "show how a change of the network stands; try, keep or take one back",
    about:
      "A change that could cut this node off must prove within its time that the control plane and a gateway are reached, or it is taken " +
      "back. 'try' puts the network of a file in the place of the control plane's for so many minutes, unless 'keep' comes before they are " +
      "over; what is kept lasts until the machine starts anew or the control plane changes the network. 'revert' takes a change back at once.",
    arguments: [
      {
        name: "action",
        isRequired: false,
        help: "show (default), try, keep or revert",
        complete: ["show", "try", "keep", "revert"],
      },
      {
        name: "file",
        isRequired: false,
        help: "for try: JSON with the section network, or - for standard input",
        complete: "file",
      },
    ],
    options: {
      minutes: { value: "MINUTES", help: "how long a try lasts: 10 (default), 30 or 60", complete: ["10", "30", "60"] },
      ...JSON_OPTION,
      ...TIMEOUT,
      ...DIRECTORIES,
    },
    exits: ["ok", "failed", "usage", "unreachable", "timeout"],
    example: "holdfast network try network.json --minutes 10",
    timeoutSeconds: 180,
    load: async () => (await import("./verbs/network.ts")).networkVerb,
  },
  {
    name: "guard",
    summary: "take back a change that the agent could not confirm",
    about:
      "'restore' takes back a pending change at once unless a living agent has it and its time is not over; 'watch' waits for the end of its " +
      "time first. The agent starts a watch of its own with every change that could cut the node off.",
    arguments: [{ name: "task", isRequired: true, help: "restore or watch", complete: ["restore", "watch"] }],
    options: {
      state: { value: "DIR", help: "state directory of the agent (/var/lib/holdfast)", complete: "directory" },
      run: { value: "DIR", help: "run directory of the agent (/run/holdfast)", complete: "directory" },
      managed: { help: "systemd runs the agent" },
      id: { value: "UUID", help: "for watch: the change to watch, and no other" },
      help: DIRECTORIES.help,
    },
    exits: ["ok", "failed", "usage"],
    example: "holdfast guard restore --state /var/lib/holdfast",
  },
  {
    name: "trigger",
    summary: "run a trigger event on this node and show its output",
    about:
      "Ctrl-C cancels it. A measurement that finds nothing, such as a ping without reply, is a result and ends with 0. " +
      "With --json each line is one object: progress, then the result.",
    arguments: [
      { name: "event", isRequired: true, help: "the event's name", complete: triggerEvents },
      { name: "json", isRequired: false, help: "the event's body as JSON, or - for standard input", complete: "none" },
    ],
    options: { ...JSON_OPTION, ...TIMEOUT, ...DIRECTORIES },
    exits: ["ok", "failed", "usage", "unreachable", "unregistered", "timeout", "interrupted"],
    example: `holdfast trigger tg-ping '{"host":"192.0.2.1"}'`,
    load: async () => (await import("./verbs/trigger.ts")).triggerVerb,
  },
  {
    name: "logs",
    summary: "show what the agent logged lately",
    arguments: [],
    options: {
      lines: { short: "n", value: "N", help: "how many lines back (100)" },
      follow: { short: "f", help: "go on with new lines until Ctrl-C" },
      debug: {
        value: "PLUGIN",
        help: "follow debug lines too, of a component or a section, or of 'any'; needs root",
        complete: "none",
      },
      ...JSON_OPTION,
      ...TIMEOUT,
      ...DIRECTORIES,
    },
    exits: ["ok", "failed", "usage", "unreachable", "timeout"],
    example: "holdfast logs -n 20 -f",
    load: async () => (await import("./verbs/logs.ts")).logsVerb,
  },
  ...upgradeVerbs,
  {
    name: "completion",
    summary: "print a completion script for a shell",
    arguments: [{ name: "shell", isRequired: true, help: "bash, zsh or fish", complete: SHELLS }],
    options: DIRECTORIES,
    exits: ["ok", "usage"],
    example: "source <(holdfast completion bash)",
    load: async () => (await import("./completion/completion.ts")).completionVerb,
  },
  {
    name: "help",
    summary: "show how to use holdfast or one of its verbs",
    arguments: [{ name: "verb", isRequired: false, help: "the verb", complete: "none" }],
    options: { "json-schema": { help: "print the JSON Schema of what the verb prints with --json" }, ...DIRECTORIES },
    exits: ["ok", "usage"],
    example: "holdfast help --json-schema status",
    load: async () => (await import("./help.ts")).helpVerb,
  },
];

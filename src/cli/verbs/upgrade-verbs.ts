import { DIRECTORIES, JSON_OPTION, TIMEOUT } from "../frame/verb-options.ts";
import type { Verb } from "../frame/verb.ts";

/** The verbs about the version of this program. */
export const upgradeVerbs: readonly Verb[] = [
  {
    name: "upgrade",
    summary: "upgrade this node, and see it through",
    about:
      "Asks for the upgrade as the control plane would, and shows each step until it is over; Ctrl-C only ends the showing. Without an argument the " +
      "manifest is where the local settings say, else at the control plane. The new version has to prove itself, or the old one comes back.",
    arguments: [
      { name: "manifest", isRequired: false, help: "a file or an address of a manifest.jws", complete: "file" },
    ],
    options: {
      check: { help: "only say what there is, and whether it would be taken" },
      force: { help: "insist: also on a version that failed here before, or an older one" },
      "skip-os": { help: "leave the packages of the operating system as they are" },
      ...JSON_OPTION,
      ...TIMEOUT,
      ...DIRECTORIES,
    },
    exits: ["ok", "failed", "usage", "timeout", "interrupted"],
    example: "holdfast upgrade --check",
    timeoutSeconds: 30,
    load: async () => (await import("./upgrade.ts")).upgradeVerb,
  },
  {
    name: "version",
    summary: "print the version of this program, and those that are installed",
    arguments: [],
    options: { ...JSON_OPTION, ...DIRECTORIES },
    exits: ["ok", "usage"],
    example: "holdfast version",
    load: async () => (await import("./version.ts")).versionVerb,
  },
];

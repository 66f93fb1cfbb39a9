import { JSON_OPTION, DIRECTORIES, TIMEOUT } from "../frame/verb-options.ts";
import type { Verb } from "../frame/verb.ts";

const ACTIONS = ["ls", "rm", "mkdir", "get", "put", "tasks"] as const;

/** The verb of the node's data store. */
export const dataStoreVerbs: readonly Verb[] = [
  {
    name: "data-store",
    summary: "show the files of this node's data store, move them in and out, and follow the transfers",
    about:
      "Paths are below the root of the data store, with or without a leading slash. 'ls [PATH]' shows a tree, 'rm PATH' removes a file or a " +
      "directory with all that is in it, 'mkdir PATH' makes directories. 'get URI [PATH]' and 'put PATH URI' take http, https and s3 " +
      "addresses; a PATH or s3 URI that ends in a slash is a directory. They wait for the end of the transfer, which Ctrl-C cancels; a " +
      "second Ctrl-C leaves at once. 'tasks' lists transfers, 'tasks cancel ID' ends one that runs, 'tasks clear ID' forgets one that has " +
      "ended; the first characters of an ID are enough. With --json each line is one object.",
    arguments: [
      { name: "action", isRequired: false, help: "ls (by default), rm, mkdir, get, put or tasks", complete: ACTIONS },
      { name: "first", isRequired: false, help: "a PATH, a URI, cancel or clear", complete: ["cancel", "clear"] },
      { name: "second", isRequired: false, help: "a PATH, a URI or the ID of a task", complete: "none" },
    ],
    options: {
      detach: { help: "for get and put: print the ID of the task, and do not wait" },
      sha256: { value: "HEX", help: "for get: the SHA-256 that the file must have", complete: "none" },
      hash: { value: "HEX", help: "for get: the MD5, SHA1 or SHA-256 it must have, by its length", complete: "none" },
      multipart: { help: "for put over HTTP: as multipart/form-data" },
      watch: { short: "w", help: "for tasks: show them again every second until Ctrl-C" },
      ...JSON_OPTION,
      ...TIMEOUT,
      ...DIRECTORIES,
    },
    exits: ["ok", "failed", "usage", "unreachable", "timeout", "interrupted"],
    example: "holdfast data-store get https://files.example/debian.iso isos/",
    timeoutSeconds: 30,
    load: async () => (await import("./data-store.ts")).dataStoreVerb,
  },
];

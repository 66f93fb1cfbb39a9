import { readFile } from "node:fs/promises";
import type { Plugin } from "esbuild";

// A named import of `z` holds all of zod, every language included; of a namespace the bundler keeps what is used: 2 MB of an agent.
export const zodAsNamespace: Plugin = {
  name: "zod-as-namespace",
  setup(bundler) {
    bundler.onLoad({ filter: /\/(?:src|test)\/.*\.ts$/ }, async ({ path }) => {
      const text = await readFile(path, "utf8");
      return { loader: "ts", contents: text.replace('import { z } from "zod";', 'import * as z from "zod";') };
    });
  },
};

// The imports of a bundle are all at its top, so every program would load what any of them needs, http2 and readline
// among it; and an `import` of http reads every export, one of which is a getter that loads the whole of fetch. Fetched in
// the place where they are imported, and name by name, an agent is spared 8 MB.
export const builtinsOnFirstUse: Plugin = {
  name: "builtins-on-first-use",
  setup(bundler) {
    bundler.onResolve({ filter: /^node:/ }, ({ path, kind }) =>
      kind === "import-statement" ? { path, namespace: "builtin", sideEffects: false } : { path, external: true },
    );
    bundler.onLoad({ filter: /.*/, namespace: "builtin" }, ({ path }) => {
      const names = Object.keys(process.getBuiltinModule(path) ?? {}).filter((name) =>
        /^(?!default$)[\w$]+$/.test(name),
      );
      const pick = (name: string): string => `/* @__PURE__ */ (() => builtin.${name})()`;
      return {
        contents: [
          `const builtin = process.getBuiltinModule(${JSON.stringify(path)});`,
          "export default builtin;",
          ...names.map((name) => `export const ${name} = ${pick(name)};`),
        ].join("\n"),
      };
    });
  },
};

// The logger's worker threads, of which none is ever asked for: its module loads all there is of them, 1.5 MB of every program.
export const noLogTransports: Plugin = {
  name: "no-log-transports",
  setup(bundler) {
    bundler.onResolve({ filter: /^thread-stream$/ }, ({ path }) => ({ path, namespace: "log-transport" }));
    bundler.onLoad({ filter: /.*/, namespace: "log-transport" }, () => ({
      contents: `module.exports = class { constructor() { throw new Error("this bundle has no log transports"); } };`,
    }));
  },
};

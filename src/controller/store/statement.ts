import { sql, type Compilable, type CompiledQuery, type QueryResult, type RawBuilder } from "kysely";
import { InternalError } from "../../errors.ts";
import { engineOf, type Engine, type Executor } from "./database.ts";

/** A value of a row. */
export type Value = string | number | Uint8Array | null;

/** A value that a statement runs with: of a row, or a list for `Engine.isAnyOf`. */
type Argument = Value | readonly string[];

/** A place for a value in a compiled statement. */
class Place {
  readonly name: string;

  constructor(name: string) {
    this.name = name;
  }
}

/**
 * Makes a statement that runs often: built and compiled once for each engine, and run with other values. `build` uses `value(name)`
 * in place of each: `statement<{ uid: string }>()((db, value) => db.…where("uid", "=", value("uid")))`.
 */
export function statement<Values extends Readonly<Record<string, Argument>>>() {
  return <Row>(
    build: (
      db: Executor,
      value: <Name extends keyof Values & string>(name: Name) => RawBuilder<Values[Name]>,
    ) => Compilable<Row>,
  ): ((db: Executor, values: Values) => Promise<QueryResult<Row>>) => {
    const compiled = new Map<Engine, CompiledQuery<Row>>();
    return (db, values) => {
      const engine = engineOf(db);
      let query = compiled.get(engine);
      if (query === undefined) {
        query = build(db, (name) => sql`${new Place(name)}`).compile();
        compiled.set(engine, query);
      }
      const parameters = query.parameters.map((part) => {
        if (!(part instanceof Place)) return part;
        const value = valueOf(values, part.name);
        return Array.isArray(value) ? engine.listValue(value) : value;
      });
      return db.executeQuery<Row>({ ...query, parameters });
    };
  };
}

function valueOf(values: Readonly<Record<string, Argument>>, name: string): Argument {
  const value = values[name];
  if (value === undefined) throw new InternalError("bad-parameter", `a statement lacks its value ${name}`);
  return value;
}

/** The paths that exist, to tell a wrong method (405, with what is allowed) from a wrong path (404). */

import { CodedError } from "@kvasir/kit";

export class RouteTable {
  readonly #methods = new Map<string, Set<string>>();

  /** @param url a path, or a prefix that ends in `*` */
  add(url: string, methods: string | readonly string[]): void {
    const known = this.#methods.get(url) ?? new Set<string>();
    for (const method of [methods].flat()) known.add(method);
    this.#methods.set(url, known);
  }

  /** Methods of the path, for the `Allow` header; empty when there is no such path. */
  allowed(path: string): readonly string[] {
    for (const [url, methods] of this.#methods) {
      const matches = url.endsWith("*") ? path.startsWith(url.slice(0, -1)) : path === url;
      if (matches) return [...methods].sort();
    }
    return [];
  }

  /** The error of a request that no route answers. */
  refusal(method: string, path: string): CodedError {
    const allowed = this.allowed(path);
    if (allowed.length > 0) {
      return new CodedError(
        "method_not_allowed",
        `${method} is not possible on ${path.slice(0, 100)}. Use ${allowed.join(" or ")}.`,
      );
    }
    return new CodedError("route_not_found", `There is no ${path.slice(0, 100)} here. GET / lists what there is.`);
  }
}

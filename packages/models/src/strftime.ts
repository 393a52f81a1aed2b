/** Python's `strftime` as chat templates use it: English names, local time. */

const months = [
  "January",
  "February",
  "March",
  "April",
  "May",
  "June",
  "July",
  "August",
  "September",
  "October",
  "November",
  "December",
];
const weekdays = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/** Unknown directives stay as they are. */
export function strftime(date: Date, format: string): string {
  const pad = (value: number, digits = 2): string => String(value).padStart(digits, "0");
  const month = months[date.getMonth()] ?? "";
  const weekday = weekdays[date.getDay()] ?? "";
  const startOfYear = new Date(date.getFullYear(), 0, 1);
  const directives: Record<string, string> = {
    Y: String(date.getFullYear()),
    y: pad(date.getFullYear() % 100),
    m: pad(date.getMonth() + 1),
    d: pad(date.getDate()),
    e: String(date.getDate()).padStart(2, " "),
    j: pad(
      Math.round(
        (new Date(date.getFullYear(), date.getMonth(), date.getDate()).getTime() - startOfYear.getTime()) / 86_400_000,
      ) + 1,
      3,
    ),
    B: month,
    b: month.slice(0, 3),
    A: weekday,
    a: weekday.slice(0, 3),
    H: pad(date.getHours()),
    I: pad(date.getHours() % 12 || 12),
    M: pad(date.getMinutes()),
    S: pad(date.getSeconds()),
    p: date.getHours() < 12 ? "AM" : "PM",
    F: `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`,
    T: `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`,
    "%": "%",
  };
  return format.replace(/%(-?)([A-Za-z%])/g, (whole: string, strip: string, directive: string) => {
    const text = directives[directive];
    if (text === undefined) return whole;
    return strip === "-" ? text.replace(/^[0 ]+(?=.)/, "") : text;
  });
}

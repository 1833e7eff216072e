# SPDX-License-Identifier: Apache-2.0
"""A picture as SVG text, and the words of its head. Coordinates are pixels from the upper left corner."""
from html import escape

WIDTH = 860
MARGIN = 12
# One colour has one meaning in all pictures.
PRIVATE, ARENA, PEER, COMPUTING = "#0072b2", "#d55e00", "#b9bec5", "#8a9099"
FRAME, GRID = "#444444", "#e3e5e8"


class Drawing:
    def __init__(self):
        self.elements = []

    def text(self, x, y, words, size=12, anchor="start", bold=False, colour="black"):
        self.elements.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}"'
                             f'{" font-weight=" + chr(34) + "bold" + chr(34) if bold else ""}>{escape(words)}</text>')

    def box(self, x, y, width, height, colour, outline="none"):
        self.elements.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
                             f'fill="{colour}" stroke="{outline}"/>')

    def line(self, points, colour, width=1.0, dashes="none"):
        self.elements.append(f'<polyline points="{points_of(points)}" fill="none" stroke="{colour}" '
                             f'stroke-width="{width}" stroke-dasharray="{dashes}"/>')

    def area(self, points, colour):
        self.elements.append(f'<polygon points="{points_of(points)}" fill="{colour}" fill-opacity="0.22"/>')

    def dot(self, x, y, colour):
        self.elements.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.4" fill="{colour}"/>')

    def head(self, title, lines):
        """Returns where the picture goes on."""
        self.text(MARGIN, 24, title, 15, bold=True)
        for number, line in enumerate(lines):
            self.text(MARGIN, 44 + 15 * number, line, 11)
        return 44 + 15 * len(lines)

    def svg(self, height):
        return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" '
                f'viewBox="0 0 {WIDTH} {height:.0f}" font-family="sans-serif">\n'
                f'<rect width="{WIDTH}" height="{height:.0f}" fill="white"/>\n'
                + "\n".join(self.elements) + "\n</svg>\n")


def points_of(points):
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def one_of_each(values):
    """In their order, without repetition: "2 and 4"."""
    found = list(dict.fromkeys(str(value) for value in values if value))
    return " and ".join([", ".join(found[:-1]), found[-1]] if len(found) > 1 else found)


def provenance(parts, versions=()):
    """On what, when and of which states the parts of a picture were measured."""
    machines = [part["machine"] for part in parts]
    where = one_of_each(f"{machine['processor']} ({machine['cpus']} CPUs, Linux {machine['kernel'].split('-')[0]})"
                        for machine in machines)
    mpi = one_of_each(machine["mpi"].replace("mpirun (Open MPI)", "Open MPI") for machine in machines)
    when = one_of_each(sorted(part["date"] for part in parts))
    what = one_of_each(part["commit"] for part in parts)
    return [f"{where}; measured {when}.", f"Kolo at {what}, {', '.join([mpi, *versions])}."]

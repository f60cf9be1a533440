"""The schema of the flights as a graph has it; where others have columns only, a graph has constraints too."""

SCHEMA = """
node Airport { faa: String @key  name: String  lat: F64  lon: F64  @range(lat, -90..90)  @range(lon, -180..180) }
node Carrier { code: String @key  name: String @unique }
node Plane { tailnum: String @key  manufacturer: String  model: String  seats: I32  year: I32? }
edge Flight: Airport -> Airport {
    carrier: String  number: I32  hour: DateTime  tailnum: String?  dep_delay: I32?  distance: I32
    @range(distance, 1..)
}
"""

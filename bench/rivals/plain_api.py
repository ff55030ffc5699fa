"""The plain way to serve a table: `PORT DATABASE`, FastAPI, SQLAlchemy, Pydantic."""

import sys
from datetime import datetime

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from sqlalchemy import BigInteger, DateTime, Float, Text, select
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    pass


class Point(Base):
    __tablename__ = "poi"
    __table_args__ = ({"schema": "penstock"},)

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    title: Mapped[str] = mapped_column(Text)
    town: Mapped[str] = mapped_column(Text)
    country_id: Mapped[int] = mapped_column(BigInteger)
    lat: Mapped[float] = mapped_column(Float)
    lon: Mapped[float] = mapped_column(Float)
    points: Mapped[int] = mapped_column(BigInteger)
    updated_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


class Shown(BaseModel):
    model_config = {"from_attributes": True}

    id: int
    title: str
    town: str
    country_id: int
    lat: float
    lon: float
    points: int
    updated_at: datetime


def build(database):
    url = database.replace("postgresql://", "postgresql+psycopg://")
    engine = create_async_engine(url, pool_size=8)
    sessions = async_sessionmaker(engine, expire_on_commit=False)
    app = FastAPI()

    @app.get("/points", response_model=list[Shown])
    async def points(after: int = 0, limit: int = 50):
        async with sessions() as session:
            request = select(Point).where(Point.id > after).order_by(Point.id)
            return (await session.scalars(request.limit(limit))).all()

    return app


if __name__ == "__main__":
    port, database = sys.argv[1:]
    uvicorn.run(build(database), port=int(port), log_level="warning", access_log=False)
